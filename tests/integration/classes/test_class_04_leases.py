"""Bug class 4, stale positive: what a lookup found stays readable, or the fetch says why not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import Client, Hit, MissReason, NamespacePolicy, StoreOutcome
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import MIB
from tests.integration.support.prompts import PATIENCE_S
from tests.integration.support.settling import eventually
from tests.integration.support.values import OPAQUE, draw_bytes, draw_tokens
from tests.integration.support.wire import Wire

ARENA = 16 * MIB
BLOCK = 128 << 10
BLOCKS = 8


@pytest.fixture(scope="module")
def small() -> Iterator[LocalCluster]:
    """One node with room for about 128 blocks; its tests fill it and kill it."""
    with LocalCluster(LocalSettings(zones=1, memory_bytes=ARENA)) as running:
        yield running


def payloads(*seeds: int) -> list[bytes]:
    """Return the bytes of one prompt's blocks."""
    return [draw_bytes(BLOCK, *seeds, i) for i in range(BLOCKS)]


def store(client: Client, *seeds: int) -> list[int]:
    """Store a prompt of eight blocks; return its tokens."""
    tokens = draw_tokens(BLOCKS * 16, *seeds)
    result = client.store(tokens, payloads(*seeds), deadline_s=PATIENCE_S)
    assert [block.outcome for block in result.blocks] == [StoreOutcome.STORED] * BLOCKS
    return tokens


def press(client: Client, seed: int) -> None:
    """Store five times what the arena holds."""
    for number in range(5 * ARENA // (BLOCK * BLOCKS)):
        store(client, seed, 1_000 + number)


def found(client: Client, tokens: list[int], lease_s: float) -> Hit:
    """Look a whole prompt up."""
    hit = client.lookup(tokens, budget_s=PATIENCE_S, lease_s=lease_s)
    assert hit.tokens == len(tokens)
    return hit


def test_leased_blocks_stay_under_pressure(
    small: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: under a lease every block stays, whatever is stored meanwhile.

    Method: lease one of two prompts, store five times the arena, fetch both. That the other is
    gone shows that the pressure was real.
    """
    client = connect(small.endpoints, name, OPAQUE)
    leased, other = store(client, seed, 1), store(client, seed, 2)
    hit = found(client, leased, lease_s=60)
    loose = found(client, other, lease_s=0)
    press(client, seed)

    fetched = client.fetch(hit, deadline_s=PATIENCE_S)
    assert (fetched.tokens, fetched.reason) == (len(leased), None)
    assert [bytes(block) for block in fetched.blocks] == payloads(seed, 1)
    gone = client.fetch(loose, deadline_s=PATIENCE_S)
    assert (gone.tokens, gone.reason) == (0, MissReason.EVICTED)


def test_a_lease_ends(small: LocalCluster, connect: Connect, name: str, seed: int) -> None:
    """Goal: a lease is no pin. Method: wait for its end, store five times the arena, fetch."""
    client = connect(small.endpoints, name, OPAQUE)
    hit = found(client, store(client, seed), lease_s=0.2)
    assert hit.lease_until is not None
    time.sleep(max(hit.lease_until - time.monotonic(), 0) + 0.05)
    press(client, seed)

    gone = client.fetch(hit, deadline_s=PATIENCE_S)
    assert (gone.tokens, gone.reason) == (0, MissReason.EVICTED)
    assert gone.blocks == []


def test_touch_renews_a_lease(small: LocalCluster, connect: Connect, name: str, seed: int) -> None:
    """Goal: a slow worker can keep its blocks. Method: touch a hit without a lease, then press."""
    client = connect(small.endpoints, name, OPAQUE)
    tokens = store(client, seed)
    hit = found(client, tokens, lease_s=0)
    assert client.touch(hit, lease_s=60) == BLOCKS
    press(client, seed)
    fetched = client.fetch(hit, deadline_s=PATIENCE_S)
    assert [bytes(block) for block in fetched.blocks] == payloads(seed)


def test_a_lease_does_not_outlast_the_namespaces_ttl(
    small: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: what a policy ends has ended, and the fetch says so. Method: a TTL under a lease."""
    client = connect(small.endpoints, name, OPAQUE, policy=NamespacePolicy(ttl_s=0.5))
    tokens = store(client, seed)
    hit = client.lookup(tokens, budget_s=PATIENCE_S, lease_s=60)
    assert hit.lease_until is None or hit.lease_until <= time.monotonic() + 0.5
    gone = eventually(
        lambda: client.fetch(hit, deadline_s=PATIENCE_S),
        "the blocks expire",
        holds=lambda fetched: not fetched,
    )
    assert (gone.reason, gone.blocks) == (MissReason.EXPIRED, [])
    late = client.lookup(tokens, budget_s=PATIENCE_S)
    assert (late.tokens, late.reason) == (0, MissReason.EXPIRED)


def test_the_lease_is_seen_and_bounded(
    small: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: what is promised can be checked. Method: stat the blocks under a lease of 30 s."""
    client = connect(small.endpoints, name, OPAQUE)
    tokens = store(client, seed)
    hit = found(client, tokens, lease_s=30)
    assert hit.lease_until is not None
    assert hit.lease_until - time.monotonic() <= 30
    assert all(0 < stat.lease_s <= 30 for stat in client.stat(tokens))


def test_a_dead_node_is_a_typed_miss_and_a_restarted_one_is_stale(
    small: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a lease that a node's death broke is never served from memory of the past.

    Method: kill the node under a lease: the fetch says NODE_DOWN (or TIMEOUT), and so does a new
    lookup: no stale positive. Start it again, empty: the same hit answers STALE_EPOCH; so does
    the node itself, asked with the old lease.
    """
    client = connect(small.endpoints, name, OPAQUE)
    tokens = store(client, seed)
    hit = found(client, tokens, lease_s=60)
    down = {MissReason.NODE_DOWN, MissReason.TIMEOUT}
    member = small.members[0].name

    small.kill(member)
    dead = client.fetch(hit, deadline_s=2)
    assert dead.tokens == 0
    assert dead.reason in down
    nothing = client.lookup(tokens, budget_s=2)
    assert nothing.tokens == 0
    assert nothing.reason in down

    small.restart(member)
    stale = eventually(
        lambda: client.fetch(hit, deadline_s=2),
        "the node answers again",
        holds=lambda fetched: fetched.reason not in down,
    )
    assert (stale.tokens, stale.reason, stale.blocks) == (0, MissReason.STALE_EPOCH, [])
    with Wire(small.endpoints[0]) as wire:
        assert wire.status().answerer.incarnation > hit.leases[0].incarnation
