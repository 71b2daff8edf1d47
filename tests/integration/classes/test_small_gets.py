"""Small gets: no timer of TCP holds an answer back."""

from __future__ import annotations

import time

from kvorum.cli import LocalCluster
from kvorum.v1 import cache_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.prompts import Prompt, load, same_kv, store
from tests.integration.support.values import OPAQUE, draw_bytes
from tests.integration.support.wire import Block, Wire

GETS = 100
STALL_S = 0.038
"""What Nagle's algorithm and delayed acknowledgements cost together: 40 ms, every time."""


def stalls(seconds: list[float]) -> int:
    """Return how many took as long as the stall does."""
    return sum(one >= STALL_S for one in seconds)


def test_small_gets_do_not_stall(wire: Wire, name: str, seed: int) -> None:
    """Goal: no 40 ms stall. Method: count the 4 KiB gets that took so long; with the fault, all do.

    A busy machine may slow some of them, so fewer than half is the bound.
    """
    scope = wire.create(name, OPAQUE)
    block = Block(draw_bytes(64, seed), draw_bytes(4096, seed))
    assert [r.outcome for r in wire.put(scope, [block])] == [cache_pb2.PUT_OUTCOME_STORED]
    taken = []
    for _ in range(GETS):
        begin = time.perf_counter()
        [got] = wire.get_blocks(scope, [block])
        taken.append(time.perf_counter() - begin)
        assert bytes(got.data) == block.payload
    assert stalls(taken) < GETS // 2


def test_small_stores_and_fetches_do_not_stall(
    single: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: the same through the client: a store, a lookup and a fetch of one block each."""
    client = connect(single.endpoints, name)
    client.connect()
    taken = []
    for number in range(GETS // 4):
        prompt = Prompt.draw(1, seed, number)
        begin = time.perf_counter()
        store(client, prompt)
        fetched = load(client, prompt.tokens)
        taken.append((time.perf_counter() - begin) / 3)
        assert same_kv(fetched, prompt)
    assert stalls(taken) < len(taken) // 2
