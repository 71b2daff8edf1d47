"""Bug class 5, failed load reported as success: bad bytes are never delivered, and are counted."""

from __future__ import annotations

import pytest

from kvorum.cli import LocalCluster
from kvorum.client import Client, Fetched, MissReason, NamespacePolicy
from kvorum.core.errors import ChecksumError
from kvorum.v1 import cache_pb2, common_pb2, status
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import ProxiedCluster, pid_of
from tests.integration.support.memory import flip_in_arena
from tests.integration.support.prompts import PATIENCE_S, PATIENT
from tests.integration.support.proxy import Cut, Direction, FlipBit, Proxies
from tests.integration.support.settling import eventually
from tests.integration.support.values import OPAQUE, draw_bytes, draw_tokens, marked
from tests.integration.support.wire import Block, Scope, Wire

BLOCKS = 8
BAD = 3
SIZE = 200_000
EVERYWHERE = NamespacePolicy(replicas=3)


def payloads(seed: int) -> tuple[bytes, list[bytes]]:
    """Return a marker, and the bytes of eight blocks of which the fourth holds it."""
    marker = draw_bytes(24, seed, 99)
    blocks = [draw_bytes(SIZE, seed, i) for i in range(BLOCKS)]
    blocks[BAD] = marked(marker, SIZE, seed, BAD)
    return marker, blocks


def settled(client: Client, tokens: list[int], zones: int = 3) -> None:
    """Wait until every block is in so many zones."""
    eventually(
        lambda: [len(stat.zones) for stat in client.stat(tokens)],
        f"all blocks are in {zones} zones",
        holds=lambda counts: min(counts) == zones,
    )


def stored_blocks(wire: Wire, name: str, seed: int) -> tuple[bytes, Scope, list[Block]]:
    """Store eight raw blocks; return the marker in the fourth, and what was stored."""
    marker, contents = payloads(seed)
    scope = wire.create(name, OPAQUE)
    blocks = scope.blocks(draw_tokens(BLOCKS * 16, seed), contents)
    assert {r.outcome for r in wire.put(scope, blocks)} == {cache_pb2.PUT_OUTCOME_STORED}
    return marker, scope, blocks


def contents_of(fetched: Fetched) -> list[bytes]:
    """Return the bytes of what was fetched."""
    return [bytes(block) for block in fetched.blocks]


def test_a_bit_flipped_on_the_way_to_the_node(wire: Wire, name: str, seed: int) -> None:
    """Goal: one bad item of eight is refused by type, the others are stored, a counter moves.

    Method: a proxy flips one bit of one block's payload on its way to the node.
    """
    marker, contents = payloads(seed)
    scope = wire.create(name, OPAQUE)
    blocks = scope.blocks(draw_tokens(BLOCKS * 16, seed), contents)
    before = wire.status()
    with Proxies(int(wire.address.rpartition(":")[2])) as proxies:
        proxies.all[0].arm(FlipBit(Direction.TO_NODE, marker))
        with Wire(proxies.all[0].address) as harmed:
            results = harmed.put(scope, blocks)
        assert proxies.all[0].trips == 1

    outcomes = [r.outcome for r in results]
    assert outcomes[BAD] == cache_pb2.PUT_OUTCOME_REFUSED
    assert isinstance(status.from_detail(results[BAD].error), ChecksumError)
    del outcomes[BAD]
    assert set(outcomes) == {cache_pb2.PUT_OUTCOME_STORED}
    after = wire.status()
    assert counted(before.counters, after.counters, "corrupt_writes") == 1
    assert after.staged_bytes == before.staged_bytes
    for number, got in enumerate(wire.get_blocks(scope, blocks)):
        assert bytes(got.data) == (b"" if number == BAD else contents[number])


def counted(before: object, after: object, word: str) -> int:
    """Return by how much the counters whose name has `word` in it grew."""
    was, now = dict(before), dict(after)  # type: ignore[call-overload]  # protobuf maps
    return sum(value - was.get(key, 0) for key, value in now.items() if word in key)


def test_a_bit_flipped_on_the_way_to_the_client(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: the client sees it, takes the block from another zone, and counts it.

    Method: the proxy before the client's own zone flips a bit of one block of eight.
    """
    marker, contents = payloads(seed)
    tokens = draw_tokens(BLOCKS * 16, seed)
    client = connect(proxied.endpoints, name, OPAQUE, zone="a", policy=EVERYWHERE, settings=PATIENT)
    assert client.store(tokens, contents, deadline_s=PATIENCE_S).stored == BLOCKS
    settled(client, tokens)
    before = client.stats.corrupt_blocks
    hit = client.lookup(tokens, budget_s=PATIENCE_S)
    near = proxied.proxies["kvorum-a-0"]
    near.arm(FlipBit(Direction.TO_CLIENT, marker))

    fetched = client.fetch(hit, deadline_s=PATIENCE_S)

    assert near.trips == 1
    assert contents_of(fetched) == contents
    assert client.stats.corrupt_blocks == before + 1
    assert fetched.bytes_by_zone["a"] >= SIZE * (BLOCKS - 1)


def test_a_bit_flipped_before_every_replica_ends_the_prefix(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: no good copy can be had: the prefix before the bad block, a reason, and no bad byte.

    Method: all proxies flip a bit of the fourth block of eight; the caller's buffer, filled
    beforehand, holds nothing of the bad block and nothing behind it. Healed, all eight arrive.
    """
    marker, contents = payloads(seed)
    tokens = draw_tokens(BLOCKS * 16, seed)
    client = connect(proxied.endpoints, name, OPAQUE, zone="b", policy=EVERYWHERE, settings=PATIENT)
    assert client.store(tokens, contents, deadline_s=PATIENCE_S).stored == BLOCKS
    settled(client, tokens)
    hit = client.lookup(tokens, budget_s=PATIENCE_S)
    for proxy in proxied.proxies.values():
        proxy.arm(FlipBit(Direction.TO_CLIENT, marker))
    room = bytearray(b"\xee" * (SIZE * BLOCKS))

    fetched = client.fetch(hit, into=room, deadline_s=PATIENCE_S)

    assert (fetched.tokens, fetched.reason) == (BAD * 16, MissReason.CHECKSUM)
    assert contents_of(fetched) == contents[:BAD]
    assert room == b"".join(contents[:BAD]) + bytes(SIZE * (BLOCKS - BAD))
    assert client.stats.corrupt_blocks > 0
    proxied.heal()
    assert contents_of(client.fetch(hit, deadline_s=PATIENCE_S)) == contents


@pytest.mark.parametrize("after", [0, 1, 70_000, SIZE])
def test_an_answer_that_is_cut_short(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int, after: int
) -> None:
    """Goal: what had arrived is used, the rest comes from another zone; nothing is made up.

    Method: the proxy before the client's zone breaks off so many bytes behind a marker in the
    fourth block.
    """
    marker, contents = payloads(seed)
    tokens = draw_tokens(BLOCKS * 16, seed)
    client = connect(proxied.endpoints, name, OPAQUE, zone="c", policy=EVERYWHERE, settings=PATIENT)
    assert client.store(tokens, contents, deadline_s=PATIENCE_S).stored == BLOCKS
    settled(client, tokens)
    hit = client.lookup(tokens, budget_s=PATIENCE_S)
    near = proxied.proxies["kvorum-c-0"]
    near.arm(Cut(Direction.TO_CLIENT, marker, after))

    fetched = client.fetch(hit, deadline_s=PATIENCE_S)

    assert near.trips >= 1
    assert (contents_of(fetched), fetched.reason) == (contents, None)
    assert set(fetched.bytes_by_zone) > {"c"} or fetched.bytes_by_zone["c"] >= SIZE * BLOCKS


def test_an_answer_that_is_cut_short_everywhere(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: with no replica left the fetch ends, typed, with the blocks that arrived whole."""
    marker, contents = payloads(seed)
    tokens = draw_tokens(BLOCKS * 16, seed)
    client = connect(proxied.endpoints, name, OPAQUE, policy=EVERYWHERE, settings=PATIENT)
    assert client.store(tokens, contents, deadline_s=PATIENCE_S).stored == BLOCKS
    settled(client, tokens)
    hit = client.lookup(tokens, budget_s=PATIENCE_S)
    for proxy in proxied.proxies.values():
        proxy.arm(Cut(Direction.TO_CLIENT, marker, 1000))

    fetched = client.fetch(hit, deadline_s=5)

    assert fetched.reason in {MissReason.NODE_DOWN, MissReason.TIMEOUT}
    assert fetched.tokens <= BAD * 16
    assert contents_of(fetched) == contents[: fetched.tokens // 16]


def test_a_bit_flipped_on_the_way_to_the_node_is_stored_elsewhere_or_refused(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a store says block by block what became of it, and what it says stored is right.

    Method: all proxies flip a bit of the fourth block on its way in.
    """
    marker, contents = payloads(seed)
    tokens = draw_tokens(BLOCKS * 16, seed)
    client = connect(proxied.endpoints, name, OPAQUE, policy=EVERYWHERE, settings=PATIENT)
    client.connect()
    for proxy in proxied.proxies.values():
        proxy.arm(FlipBit(Direction.TO_NODE, marker))

    result = client.store(tokens, contents, deadline_s=PATIENCE_S)

    assert (result.stored, result.refused) == (BLOCKS - 1, 1)
    assert isinstance(result.blocks[BAD].error, ChecksumError)
    proxied.heal()
    hit = client.lookup(tokens, budget_s=PATIENCE_S)
    assert (hit.tokens, hit.reason) == (BAD * 16, MissReason.NEVER_STORED)
    assert contents_of(client.fetch(hit, deadline_s=PATIENCE_S)) == contents[:BAD]


def test_a_bit_flipped_in_a_nodes_memory(
    single: LocalCluster, wire: Wire, name: str, seed: int
) -> None:
    """Goal: the node itself sees that its memory changed: a miss for that item, the rest intact.

    Method: flip a bit of one stored block of eight through /proc; the read answers CHECKSUM, the
    block is dropped with all that continue it, and counters move; it can be stored again.
    """
    marker, scope, blocks = stored_blocks(wire, name, seed)
    before = wire.status()
    assert flip_in_arena(pid_of(single, single.members[0].name), marker) == 1

    got = wire.get_blocks(scope, blocks)

    assert (got[BAD].miss, bytes(got[BAD].data)) == (common_pb2.MISS_REASON_CHECKSUM, b"")
    assert [bytes(g.data) for g in got[:BAD]] == [b.payload for b in blocks[:BAD]]
    for late, block in zip(got[BAD + 1 :], blocks[BAD + 1 :], strict=True):
        assert bytes(late.data) in (block.payload, b"")
        assert bool(late.data) is not bool(late.miss)
    after = wire.status()
    assert after.misses["CHECKSUM"] >= before.misses.get("CHECKSUM", 0) + 1
    assert after.counters["corrupt_blocks"] > before.counters["corrupt_blocks"]
    looked = wire.lookup(scope, [b.key for b in blocks])
    assert looked.present_blocks == BAD
    assert looked.blocks[BAD].miss == common_pb2.MISS_REASON_CHECKSUM
    wire.put(scope, blocks)
    assert [bytes(g.data) for g in wire.get_blocks(scope, blocks)] == [b.payload for b in blocks]


def test_a_bit_flipped_in_one_replica_is_read_from_another(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a worker gets the right bytes although its zone's copy is damaged.

    Method: flip a bit in the memory of the node of the client's zone; fetch all eight blocks.
    """
    marker, contents = payloads(seed)
    tokens = draw_tokens(BLOCKS * 16, seed)
    client = connect(proxied.endpoints, name, OPAQUE, zone="a", policy=EVERYWHERE, settings=PATIENT)
    assert client.store(tokens, contents, deadline_s=PATIENCE_S).stored == BLOCKS
    settled(client, tokens)
    assert flip_in_arena(proxied.pid("kvorum-a-0"), marker) == 1

    hit = client.lookup(tokens, budget_s=PATIENCE_S)
    fetched = client.fetch(hit, deadline_s=PATIENCE_S)

    assert (contents_of(fetched), fetched.reason) == (contents, None)
    assert set(fetched.bytes_by_zone) > {"a"}


def test_one_item_of_eight_is_unknown(wire: Wire, name: str, seed: int) -> None:
    """Goal: every item has a status of its own. Method: ask for eight keys, one never stored."""
    scope = wire.create(name, OPAQUE)
    blocks = [Block(draw_bytes(64, seed, i), draw_bytes(9000, seed, i)) for i in range(BLOCKS)]
    wire.put(scope, blocks[:BAD] + blocks[BAD + 1 :])

    got = wire.get_blocks(scope, blocks)

    assert [g.miss for g in got] == [
        common_pb2.MISS_REASON_NEVER_STORED if i == BAD else 0 for i in range(BLOCKS)
    ]
    assert [bytes(g.data) for g in got] == [
        b"" if i == BAD else block.payload for i, block in enumerate(blocks)
    ]
    assert {g.headers for g in got} == {1}
