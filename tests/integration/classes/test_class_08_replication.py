"""Bug class 8, silent under-replication: an acknowledgement says what was achieved, no more."""

from __future__ import annotations

from kvorum.client import Client, NamespacePolicy
from kvorum.core.layout import BlockLayout
from kvorum.v1 import cluster_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import ProxiedCluster
from tests.integration.support.prompts import PATIENCE_S, PATIENT, Prompt, load, same_kv, store
from tests.integration.support.settling import eventually
from tests.integration.support.values import TENSORS
from tests.integration.support.wire import Wire


def zones_of(client: Client, prompt: Prompt) -> list[tuple[str, ...]]:
    """Return the zones that hold each block now."""
    return [tuple(sorted(stat.zones)) for stat in client.stat(prompt.tokens)]


def test_replicas_lie_in_different_zones(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: as many replicas as were asked for, in distinct zones, where the map says.

    Method: store prompts with one, two and three replicas; compare what nodes hold with the map.
    """
    for replicas in (1, 2, 3):
        policy = NamespacePolicy(replicas=replicas)
        client = connect(proxied.endpoints, f"{name}-{replicas}", policy=policy)
        for number in range(4):
            prompt = Prompt.draw(2, seed, replicas, number)
            result = store(client, prompt)
            assert {block.replicas for block in result.blocks} == {replicas}
            hit = client.lookup(prompt.tokens, budget_s=PATIENCE_S)
            members = proxied.file.map.replicas(hit.blocks[0].slot, replicas)
            wanted = tuple(sorted(member.zone for member in members))
            assert len(set(wanted)) == replicas
            eventually(
                lambda: zones_of(client, prompt),  # noqa: B023  # used at once
                f"both blocks are in {wanted}",
                holds=lambda zones: zones == [wanted, wanted],  # noqa: B023  # used at once
            )


def test_an_acknowledgement_names_only_zones_that_hold_the_block(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: with a zone hung, no store claims it; what it lacks is counted; it catches up.

    Method: stop the node of zone c, store with three replicas: the acknowledgement states three
    wanted and does not name c; the gauge of the storing node counts what c lacks. Let it go on:
    the count returns to zero and c holds the same bytes.
    """
    policy = NamespacePolicy(replicas=3)
    client = connect(proxied.endpoints, name, zone="a", policy=policy)
    client.connect()
    prompt = Prompt.draw(4, seed)
    hung = proxied.processes["kvorum-c-0"]
    hung.pause()

    result = store(client, prompt)

    assert {block.replicas for block in result.blocks} == {3}
    assert result.zones
    assert "c" not in result.zones
    lacking = sum(
        peer.lag_entries
        for member in proxied.members
        if member.zone in result.zones
        for peer in status_of(member.address).peers
        if peer.zone == "c"
    )
    assert lacking >= 4
    hung.resume()
    eventually(lambda: zones_of(client, prompt), "c caught up", holds=in_all_zones)
    for member in proxied.members:
        eventually(
            lambda: [peer.lag_entries for peer in status_of(member.address).peers],  # noqa: B023
            "nothing is lacking",
            holds=lambda lags: not any(lags),
        )
    reader = connect(proxied.endpoints, name, zone="c", create=False)
    hit = reader.lookup(prompt.tokens, budget_s=PATIENCE_S)
    fetched = reader.fetch(hit, deadline_s=PATIENCE_S)
    assert same_kv(fetched, prompt)
    assert set(fetched.bytes_by_zone) == {"c"}


def test_a_delete_reaches_a_node_that_was_hung(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a deleted block is no ghost. Method: delete while a replica is stopped.

    When the replica goes on, it drops the block, and no zone has it any more, for good.
    """
    client = connect(proxied.endpoints, name, zone="a", policy=NamespacePolicy(replicas=3))
    prompt = Prompt.draw(3, seed)
    store(client, prompt)
    eventually(lambda: zones_of(client, prompt), "all zones hold it", holds=in_all_zones)
    hung = proxied.processes["kvorum-c-0"]
    hung.pause()
    assert client.delete(prompt.tokens) == 3
    assert not client.lookup(prompt.tokens, budget_s=1)
    hung.resume()

    eventually(
        lambda: [len(zones) for zones in zones_of(client, prompt)],
        "no zone holds it",
        holds=lambda counts: not any(counts),
    )
    for zone in "abc":
        reader = connect(proxied.endpoints, name, zone=zone, create=False)
        assert not reader.lookup(prompt.tokens, budget_s=PATIENCE_S)
    again = prompt.other_kv(seed, 1)
    assert store(client, again).stored == 3
    eventually(lambda: zones_of(client, prompt), "all zones hold the next", holds=in_all_zones)


def test_an_overwrite_reaches_a_node_that_was_hung(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a node that slept through an overwrite does not keep the old value.

    Method: overwrite while a replica is stopped; when it goes on, its zone serves the new bytes,
    and at no time a mixture.
    """
    client = connect(proxied.endpoints, name, zone="a", policy=NamespacePolicy(replicas=3))
    old = Prompt.draw(3, seed)
    new = old.other_kv(seed, 1)
    store(client, old)
    eventually(lambda: zones_of(client, old), "all zones hold it", holds=in_all_zones)
    hung = proxied.processes["kvorum-c-0"]
    hung.pause()
    assert store(client, new, overwrite=True).stored == 3
    hung.resume()

    reader = connect(proxied.endpoints, name, zone="c", create=False, settings=PATIENT)

    def served() -> bool:
        fetched = load(reader, old.tokens)
        blocks = [bytes(block) for block in fetched.blocks]
        for known in zip(blocks, parts_of(old), parts_of(new), strict=False):
            assert known[0] in known[1:]
        return blocks == parts_of(new) and set(fetched.bytes_by_zone) == {"c"}

    eventually(served, "zone c serves the new value")


def parts_of(prompt: Prompt) -> list[bytes]:
    """Return the bytes of each block."""
    layout = BlockLayout.of(TENSORS)
    return [block.tobytes() for block in layout.split(prompt.kv, len(prompt.tokens) // 16)]


def in_all_zones(zones: list[tuple[str, ...]]) -> bool:
    """Whether every block is in all three zones."""
    return set(zones) == {("a", "b", "c")}


def status_of(address: str) -> cluster_pb2.GetNodeStatusResponse:
    """Return the state of the node at an address."""
    with Wire(address) as wire:
        return wire.status()
