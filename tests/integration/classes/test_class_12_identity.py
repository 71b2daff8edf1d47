"""Bug class 12, identity poisoning: a node that comes back is what it holds, not what it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import MissReason, NamespacePolicy
from kvorum.core.errors import (
    IncarnationError,
    MapMismatchError,
    NamespaceNotFoundError,
    UnavailableError,
)
from kvorum.placement import ClusterFile
from kvorum.v1 import cache_pb2, common_pb2, namespace_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import MIB, START_S, new_file, node_process
from tests.integration.support.prompts import PATIENCE_S, Prompt, load, same_kv, store
from tests.integration.support.settling import eventually
from tests.integration.support.values import TENSORS, draw_tokens
from tests.integration.support.wire import CALL_S, Scope, Wire, put_messages, request_context, typed

STALE = common_pb2.MISS_REASON_STALE_EPOCH


@pytest.fixture(scope="module")
def mortal() -> Iterator[LocalCluster]:
    """Three zones of one node; its tests kill and replace nodes, and restore them."""
    with LocalCluster(LocalSettings(zones=3, memory_bytes=32 * MIB)) as running:
        yield running


def test_a_node_that_restarts_empty_serves_no_ghost(
    mortal: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a new life has a new number, holds nothing, and breaks the leases of the old one.

    Method: lease blocks on one node, restart it on its address, read under the old lease; other
    replicas serve all the while, and the new life takes stores again.
    """
    client = connect(mortal.endpoints, name, zone="a", policy=NamespacePolicy(replicas=3))
    prompt = Prompt.draw(3, seed)
    store(client, prompt)
    eventually(
        lambda: [len(stat.zones) for stat in client.stat(prompt.tokens)],
        "all zones hold it",
        holds=lambda zones: min(zones) == 3,
    )
    member = mortal.members[0]
    with Wire(member.address) as wire:
        scope = eventually(lambda: opened(wire, name), "the namespace reached this node")
        assert scope is not None
        blocks = scope.blocks(prompt.tokens, [b""] * 3)
        lease = wire.lookup(scope, [b.key for b in blocks], lease_ms=60_000).lease
        old = wire.status().answerer.incarnation
        assert lease.incarnation == old

    mortal.restart(member.name)

    with Wire(member.address) as wire:
        assert wire.status().answerer.incarnation > old
        again = eventually(lambda: opened(wire, name), "the new life learns namespaces")
        assert again == scope
        items = [cache_pb2.GetItem(block=block.ref) for block in blocks]
        held = wire.status().blocks
        for got in wire.get(scope, items, lease=lease):
            assert (got.miss, bytes(got.data)) == (STALE, b"") or held
        with pytest.raises(IncarnationError):
            wire.get(scope, items, context=request_context(incarnation=old))
    assert same_kv(load(client, prompt.tokens), prompt)
    fresh = Prompt.draw(2, seed, 1)
    store(client, fresh)
    eventually(
        lambda: [len(stat.zones) for stat in client.stat(fresh.tokens)],
        "the new life takes replicas",
        holds=lambda zones: min(zones) == 3,
    )


def opened(wire: Wire, name: str) -> Scope | None:
    """Return a namespace, or None while the node has not heard of it."""
    try:
        return wire.open(name, TENSORS)
    except NamespaceNotFoundError:
        return None


def impostor_file(mortal: LocalCluster) -> ClusterFile:
    """Return another cluster's file with the same names and addresses."""
    ports = [int(address.rpartition(":")[2]) for address in mortal.endpoints]
    return new_file(3, ports)


def test_a_node_of_another_cluster_is_refused(
    mortal: LocalCluster, connect: Connect, name: str, seed: int, tmp_path: Path
) -> None:
    """Goal: a node with another map on a member's address gets and gives nothing.

    Method: replace one node by one with another cluster file: calls with the right map's digest
    are refused as MAP_MISMATCH, peers do not connect, clients go on with the other zones; then the
    right node comes back and is accepted.
    """
    client = connect(mortal.endpoints, name, zone="b", policy=NamespacePolicy(replicas=3))
    prompt = Prompt.draw(3, seed)
    store(client, prompt)
    member = next(member for member in mortal.members if member.zone == "b")
    with Wire(mortal.endpoints[0]) as wire:
        digest = wire.topology().map_digest
        found = eventually(lambda: opened(wire, name), "the namespace reached this node")
        assert found is not None
        blocks = found.blocks(prompt.tokens, [b"p" * 4096] * 3)
    mortal.kill(member.name)
    path = tmp_path / "cluster.toml"
    path.write_text(impostor_file(mortal).render())

    with node_process(member.name, path, memory_bytes=32 * MIB) as impostor:
        impostor.wait_ready(time.monotonic() + START_S)
        with Wire(member.address) as wire:
            assert wire.topology().map_digest != digest
            with pytest.raises(UnavailableError):  # no other zone takes its namespace
                wire.create(name, TENSORS)
            scope = wire.open(name, TENSORS)
            context = request_context(digest)
            with pytest.raises(MapMismatchError):
                wire.get(scope, [cache_pb2.GetItem(block=blocks[0].ref)], context=context)
            with pytest.raises(MapMismatchError):
                wire.send(put_messages(scope, blocks, context=context))
            # What it would serve if it were asked without a map must not reach this client.
            wire.put(scope, blocks)
            assert same_kv(load(client, prompt.tokens), prompt)
            more = Prompt.draw(2, seed, 1)
            store(client, more)
            assert same_kv(load(client, more.tokens), more)
            assert {peer.connected for peer in wire.status().peers} <= {False}
            assert wire.status().blocks == 3
            with Wire(mortal.endpoints[0]) as honest:
                eventually(
                    lambda: [p.connected for p in honest.status().peers if p.zone == "b"],
                    "the peers do not talk to it",
                    holds=lambda seen: seen == [False],
                )

    mortal.restart(member.name)
    eventually(
        lambda: [len(stat.zones) for stat in client.stat(more.tokens)],
        "the member is back",
        holds=lambda zones: min(zones) == 3,
    )


def test_a_client_of_another_cluster_is_refused(mortal: LocalCluster, name: str, seed: int) -> None:
    """Goal: a caller with another map learns it by type. Method: send another digest."""
    other = impostor_file(mortal).digest()
    with Wire(mortal.endpoints[0]) as wire:
        scope = wire.create(name, TENSORS)
        block = scope.blocks(draw_tokens(16, seed), [b"x" * 4096])[0]
        with pytest.raises(MapMismatchError) as caught:
            wire.send(put_messages(scope, [block], context=request_context(other)))
        assert caught.value.field == "context.map_digest"
        assert wire.lookup(scope, [block.key]).present_blocks == 0


def test_a_node_that_comes_back_for_another_model_gives_no_old_block(
    mortal: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a namespace deleted and made anew for another model holds nothing of the old one.

    Method: delete the namespace, make it with another fingerprint, look the old tokens up.
    """
    prompt = Prompt.draw(2, seed)
    client = connect(mortal.endpoints, name)
    store(client, prompt)
    other = replace(TENSORS, weights_revision="rev-2")
    with Wire(mortal.endpoints[0]) as wire:
        with typed(wire.address):
            wire.namespaces.DeleteNamespace(
                namespace_pb2.DeleteNamespaceRequest(context=request_context(), name=name),
                timeout=CALL_S,
            )
        wire.create(name, other)
    reader = connect(mortal.endpoints, name, other)
    hit = reader.lookup(prompt.tokens, budget_s=PATIENCE_S)
    assert hit.tokens == 0
    assert hit.reason in {MissReason.NEVER_STORED, MissReason.INVALIDATED}
    old = client.lookup(prompt.tokens, budget_s=PATIENCE_S)
    assert (old.tokens, old.reason) == (0, MissReason.FINGERPRINT)
