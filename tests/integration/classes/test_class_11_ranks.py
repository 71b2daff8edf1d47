"""Bug class 11, rank inconsistency: a block is whole for every rank, or missing for every rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from kvorum.cli import LocalCluster
from kvorum.client import Client, Fingerprint, Hit, MissReason, NamespacePolicy
from kvorum.core.layout import BlockLayout
from kvorum.v1 import common_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import pid_of
from tests.integration.support.memory import flip_in_arena
from tests.integration.support.prompts import PATIENCE_S
from tests.integration.support.values import (
    OPAQUE,
    TENSORS,
    draw_bytes,
    draw_tokens,
    generator,
    marked,
)
from tests.integration.support.wire import Block, Wire

BLOCKS = 3
ranks = pytest.mark.parametrize("size", [2, 4])


def fingerprint(size: int) -> Fingerprint:
    """Return the fingerprint of a model on so many tensor-parallel ranks."""
    return replace(TENSORS, tp_size=size)


def part_kv(size: int, *seeds: int) -> npt.NDArray[np.generic]:
    """Return one rank's KV of three blocks."""
    shape = BlockLayout.of(fingerprint(size)).sequence_shape(BLOCKS)
    return generator(*seeds).integers(0, 1 << 16, shape, dtype=np.uint16).view(np.float16)


def engine(
    connect: Connect, cluster: LocalCluster, name: str, size: int, writer: str
) -> list[Client]:
    """Return one client for each rank of an engine."""
    policy = NamespacePolicy(replicas=2)
    return [
        connect(cluster.endpoints, name, fingerprint(size), part=part, writer=writer, policy=policy)
        for part in range(size)
    ]


def lookups(clients: list[Client], tokens: list[int]) -> list[Hit]:
    """Return what each rank finds."""
    return [client.lookup(tokens, budget_s=PATIENCE_S) for client in clients]


@ranks
def test_a_block_is_visible_only_with_all_its_parts(
    cluster: LocalCluster, connect: Connect, name: str, seed: int, size: int
) -> None:
    """Goal: until the last rank has stored, every rank misses; then every rank reads its part.

    Method: the ranks of one engine store one after the other; all look up after each step.
    """
    clients = engine(connect, cluster, name, size, "engine-1")
    tokens = draw_tokens(BLOCKS * 16, seed)
    for part, client in enumerate(clients):
        assert [hit.tokens for hit in lookups(clients, tokens)] == [0] * size
        result = client.store(tokens, part_kv(size, seed, part), deadline_s=PATIENCE_S)
        last = part == size - 1
        assert (result.staged, result.stored) == ((0, BLOCKS) if last else (BLOCKS, 0))

    hits = lookups(clients, tokens)
    assert [hit.tokens for hit in hits] == [len(tokens)] * size
    assert len({tuple(block.group for block in hit.blocks) for hit in hits}) == 1
    for part, (client, hit) in enumerate(zip(clients, hits, strict=True)):
        fetched = client.fetch(hit, deadline_s=PATIENCE_S)
        assert fetched.kv is not None
        assert fetched.kv.tobytes() == part_kv(size, seed, part).tobytes()


@ranks
def test_ranks_in_different_zones_meet(
    cluster: LocalCluster, connect: Connect, name: str, seed: int, size: int
) -> None:
    """Goal: an engine whose ranks are spread over zones fills the cache too.

    Method: each rank stores from another zone, or from none; all parts of a block must come to one
    node, or it would never be whole. Then each rank reads from its own zone.
    """
    zones = ["a", "b", None, "c"][:size]
    clients = [
        connect(cluster.endpoints, name, fingerprint(size), part=part, writer="engine-1", zone=zone)
        for part, zone in enumerate(zones)
    ]
    for number in range(6):
        tokens = draw_tokens(BLOCKS * 16, seed, number)
        for part, client in enumerate(clients):
            client.store(tokens, part_kv(size, seed, number, part), deadline_s=PATIENCE_S)
        for part, client in enumerate(clients):
            [hit] = lookups([client], tokens)
            fetched = client.fetch(hit, deadline_s=PATIENCE_S)
            assert fetched.kv is not None
            assert fetched.kv.tobytes() == part_kv(size, seed, number, part).tobytes()


@ranks
def test_parts_of_two_engines_never_mix(
    cluster: LocalCluster, connect: Connect, name: str, seed: int, size: int
) -> None:
    """Goal: a block is one engine's as a whole. Method: two engines store alternately.

    Of both engines all ranks but one store: nothing is visible, although between them every part
    was stored. Then the first completes its group, and every rank reads the first engine's bytes.
    """
    first = engine(connect, cluster, name, size, "engine-1")
    second = engine(connect, cluster, name, size, "engine-2")
    tokens = draw_tokens(BLOCKS * 16, seed)
    for part in range(size - 1):
        first[part].store(tokens, part_kv(size, seed, 1, part), deadline_s=PATIENCE_S)
    for part in range(1, size):
        second[part].store(tokens, part_kv(size, seed, 2, part), deadline_s=PATIENCE_S)
    assert [hit.tokens for hit in lookups(first + second, tokens)] == [0] * (2 * size)

    last = first[-1].store(tokens, part_kv(size, seed, 1, size - 1), deadline_s=PATIENCE_S)
    assert last.stored == BLOCKS
    for clients in (first, second):
        for part, client in enumerate(clients):
            [hit] = lookups([client], tokens)
            fetched = client.fetch(hit, deadline_s=PATIENCE_S)
            assert fetched.kv is not None
            assert fetched.kv.tobytes() == part_kv(size, seed, 1, part).tobytes()
    late = second[0].store(tokens, part_kv(size, seed, 2, 0), deadline_s=PATIENCE_S)
    assert late.already_stored == BLOCKS


@ranks
def test_ranks_that_share_a_hit_read_one_group(
    cluster: LocalCluster, connect: Connect, name: str, seed: int, size: int
) -> None:
    """Goal: an overwrite between two ranks' reads cannot give them parts of two groups.

    Method: one hit for all ranks; after rank 0 has read, an engine overwrites the blocks; the
    other ranks get their part of the old group, or a miss, and never the new bytes.
    """
    clients = engine(connect, cluster, name, size, "engine-1")
    tokens = draw_tokens(BLOCKS * 16, seed)
    for part, client in enumerate(clients):
        client.store(tokens, part_kv(size, seed, 1, part), deadline_s=PATIENCE_S)
    hit = clients[0].lookup(tokens, budget_s=PATIENCE_S)
    assert clients[0].fetch(hit, deadline_s=PATIENCE_S).tokens == len(tokens)
    for part, client in enumerate(clients):
        client.store(tokens, part_kv(size, seed, 2, part), overwrite=True, deadline_s=PATIENCE_S)
    for part, client in enumerate(clients[1:], start=1):
        fetched = client.fetch(hit, deadline_s=PATIENCE_S)
        old = part_kv(size, seed, 1, part)[:, :, :, : fetched.tokens]
        assert fetched.kv is not None
        assert fetched.kv.tobytes() == old.tobytes()
        assert fetched.reason is not None or fetched.tokens == len(tokens)


@ranks
def test_one_damaged_part_takes_the_block_from_all_ranks(
    single: LocalCluster, wire: Wire, name: str, seed: int, size: int
) -> None:
    """Goal: no rank goes on with a block that another rank cannot read.

    Method: flip a bit of the last rank's part in the node's memory; that rank reads CHECKSUM, and
    from then on no rank finds the block.
    """
    scope = wire.create(name, replace(OPAQUE, tp_size=size))
    key, marker = draw_bytes(64, seed), draw_bytes(24, seed, 99)
    parts = [
        Block(
            key,
            marked(marker, 9_000, seed, part)
            if part == size - 1
            else draw_bytes(9_000, seed, part),
            part=part,
            parts=size,
        )
        for part in range(size)
    ]
    wire.put(scope, parts)
    assert wire.lookup(scope, [key]).present_blocks == 1
    assert flip_in_arena(pid_of(single, single.members[0].name), marker) == 1

    [damaged] = wire.get_blocks(scope, parts[-1:])

    checksum = common_pb2.MISS_REASON_CHECKSUM
    assert (damaged.miss, bytes(damaged.data)) == (checksum, b"")
    for got in wire.get_blocks(scope, parts):
        assert (got.miss, bytes(got.data)) == (checksum, b"")
    answer = wire.lookup(scope, [key])
    assert (answer.present_blocks, answer.blocks[0].miss) == (0, checksum)


def test_a_part_that_never_comes_gives_its_memory_back(wire: Wire, name: str, seed: int) -> None:
    """Goal: a lost rank leaves neither a block nor memory; its writer may start over.

    Method: stage one of two parts, then stage it again with other bytes (the rank restarted), then
    the other: the group consists of the latest parts alone.
    """
    scope = wire.create(name, replace(OPAQUE, tp_size=2))
    key = draw_bytes(64, seed)
    before = wire.status().staged_bytes
    stale, fresh, other = (
        Block(key, draw_bytes(9_000, seed, i), part=part, parts=2)
        for i, part in enumerate((0, 0, 1))
    )
    for block in (stale, fresh, other):
        wire.put(scope, [block], writer="engine-1")

    got = wire.get_blocks(scope, [fresh, other])
    assert [bytes(one.data) for one in got] == [fresh.payload, other.payload]
    assert wire.status().staged_bytes == before


def test_parts_must_be_as_many_as_the_fingerprint_says(
    cluster: LocalCluster, connect: Connect, wire: Wire, name: str, seed: int
) -> None:
    """Goal: a worker with another split is refused. Method: other `parts` than the fingerprint."""
    scope = wire.create(name, replace(OPAQUE, tp_size=2))
    block = Block(draw_bytes(64, seed), draw_bytes(100, seed), part=0, parts=3)
    error = wire.refusal(scope, [block])
    assert "parts" in error.field
    client = connect(cluster.endpoints, name, fingerprint(2), part=0, writer="engine-1")
    hit = client.lookup(draw_tokens(32, seed), budget_s=PATIENCE_S)
    assert (hit.tokens, hit.reason) == (0, MissReason.NEVER_STORED)
