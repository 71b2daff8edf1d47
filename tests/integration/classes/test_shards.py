"""Several shards: a prompt over many nodes is one prefix, and no node speaks for another's keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import Client, MissReason, NamespacePolicy
from kvorum.core.errors import NotOwnerError
from kvorum.v1 import common_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import MIB, map_of
from tests.integration.support.prompts import PATIENCE_S, Prompt, load, same_kv, store
from tests.integration.support.settling import eventually
from tests.integration.support.values import TENSORS
from tests.integration.support.wire import Block, Wire

SEGMENT_BLOCKS = 2_048 // TENSORS.block_tokens
BLOCKS = 5 * SEGMENT_BLOCKS + 3


@pytest.fixture(scope="module")
def sharded() -> Iterator[LocalCluster]:
    """Two zones of two shards."""
    with LocalCluster(LocalSettings(zones=2, shards=2, memory_bytes=64 * MIB)) as running:
        yield running


@pytest.fixture
def client(sharded: LocalCluster, connect: Connect, name: str) -> Client:
    """A client of zone a, whose blocks go to both zones."""
    return connect(sharded.endpoints, name, zone="a", policy=NamespacePolicy(replicas=2))


def spread_prompt(sharded: LocalCluster, client: Client, seed: int) -> Prompt:
    """Store a prompt of six segments that lie on both shards."""
    owners = map_of(sharded)
    for attempt in range(20):
        prompt = Prompt.draw(BLOCKS, seed, attempt)
        assert store(client, prompt).stored == BLOCKS
        hit = client.lookup(prompt.tokens, budget_s=PATIENCE_S)
        assert hit.tokens == len(prompt.tokens)
        if {owners.shard_of(block.slot) for block in hit.blocks} == {0, 1}:
            return prompt
    raise AssertionError("no prompt lies on both shards")


def test_a_prompt_over_two_shards_is_one_prefix(
    sharded: LocalCluster, client: Client, seed: int
) -> None:
    """Goal: where segments lie changes nothing. Method: fetch all, a prefix, and into a tensor."""
    prompt = spread_prompt(sharded, client, seed)
    assert same_kv(load(client, prompt.tokens), prompt)
    cut = load(client, prompt.tokens[: 3 * 2_048 + 40])
    assert cut.tokens == 3 * 2_048 + 32
    assert same_kv(cut, prompt)
    room = np.zeros_like(prompt.kv)
    hit = client.lookup(prompt.tokens, budget_s=PATIENCE_S)
    client.fetch(hit, into=room, deadline_s=PATIENCE_S)
    assert room.tobytes() == prompt.kv.tobytes()


def test_a_segment_in_the_middle_ends_the_prefix(
    sharded: LocalCluster, client: Client, seed: int
) -> None:
    """Goal: no hole is ever jumped over. Method: lose the blocks of one whole shard.

    Both its nodes are killed: the prefix ends where its first segment begins, with a reason; what
    comes is right. Started again, empty, the shard takes the rest anew.
    """
    prompt = spread_prompt(sharded, client, seed)
    owners = map_of(sharded)
    hit = client.lookup(prompt.tokens, budget_s=PATIENCE_S)
    lost = owners.shard_of(hit.blocks[-1].slot)
    first = next(i for i, b in enumerate(hit.blocks) if owners.shard_of(b.slot) == lost)
    nodes = [member.name for member in owners.shard_members(lost)]
    for node in nodes:
        sharded.kill(node)
    try:
        cut = client.lookup(prompt.tokens, budget_s=2)
        assert cut.tokens == first * 16
        assert cut.reason in {MissReason.NODE_DOWN, MissReason.TIMEOUT}
        fetched = client.fetch(hit, deadline_s=2)
        assert fetched.tokens == first * 16
        assert fetched.tokens == 0 or same_kv(fetched, prompt)
    finally:
        for node in nodes:
            sharded.restart(node)
    eventually(
        lambda: client.store(prompt.tokens, prompt.kv, deadline_s=PATIENCE_S).refused,
        "the shard takes stores again",
        holds=lambda refused: refused == 0,
    )
    assert same_kv(load(client, prompt.tokens), prompt)


def test_a_node_refuses_what_another_shard_owns(
    sharded: LocalCluster, client: Client, name: str, seed: int
) -> None:
    """Goal: a wrong address is a typed answer. Method: ask each node for the other shard's keys."""
    prompt = spread_prompt(sharded, client, seed)
    hit = client.lookup(prompt.tokens, budget_s=PATIENCE_S)
    owners = map_of(sharded)
    for member in sharded.members:
        foreign = next(b for b in hit.blocks if owners.shard_of(b.slot) != member.shard)
        with Wire(member.address) as wire:
            scope = wire.open(name, TENSORS)
            sizes = scope.frame_sizes
            block = Block(
                foreign.key, bytes(sum(sizes)), slot=foreign.slot, frame_sizes=sizes, index=1
            )
            assert isinstance(wire.refusal(scope, [block]), NotOwnerError)
            [got] = wire.get_blocks(scope, [block])
            assert (got.miss, bytes(got.data)) == (common_pb2.MISS_REASON_STALE_EPOCH, b"")
            answer = wire.lookup(scope, [b.key for b in hit.blocks])
            assert [b.shard for b in answer.blocks] == [owners.shard_of(b.slot) for b in hit.blocks]
