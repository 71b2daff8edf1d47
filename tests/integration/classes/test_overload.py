"""Overload: more work than a node takes is refused at once and by type, and leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.core.errors import DeadlineError, OverloadedError
from kvorum.v1 import cache_pb2
from tests.integration.support.clusters import MIB
from tests.integration.support.parked_writer import Torn, first_bytes, parked
from tests.integration.support.settling import eventually
from tests.integration.support.values import OPAQUE, draw_bytes, generator
from tests.integration.support.wire import Block, Scope, Wire, put_messages, request_context, typed

PUTS = 3
GETS = 3
SIZE = 100_000
SLACK_S = 5.0


@pytest.fixture(scope="module")
def narrow() -> Iterator[Wire]:
    """One node that serves three stores and three reads at once."""
    flags = {"concurrent-puts-max": str(PUTS), "concurrent-gets-max": str(GETS)}
    settings = LocalSettings(zones=1, memory_bytes=64 * MIB, node_flags=flags)
    with LocalCluster(settings) as running, Wire(running.endpoints[0]) as wire:
        yield wire


def test_stores_beyond_the_bound_are_refused(narrow: Wire, name: str, seed: int) -> None:
    """Goal: a full queue is an error, not a wait; when it empties, the next store succeeds.

    Method: a process opens as many stores as the node takes, and stands; one more is refused as
    OVERLOADED with a hint when to retry; reads go on; the process is killed.
    """
    scope = narrow.create(name, OPAQUE)
    block = Block(draw_bytes(64, seed), draw_bytes(SIZE, seed))
    stores = [Torn(generator(seed, i).bytes(64).hex(), SIZE, SIZE // 2, seed) for i in range(PUTS)]
    with parked(narrow.address, scope, stores):
        eventually(lambda: narrow.status().staged_bytes >= PUTS * SIZE, "all stores are open")
        with pytest.raises(OverloadedError) as caught:
            narrow.put(scope, [block])
        assert caught.value.retryable
        assert caught.value.retry_after_s
        assert (caught.value.field, f"{PUTS}") == ("concurrent_puts_max", caught.value.limit[:1])
        assert narrow.lookup(scope, [block.key]).present_blocks == 0
    eventually(lambda: narrow.status().staged_bytes == 0, "memory comes back")
    [result] = narrow.put(scope, [block])
    assert result.outcome == cache_pb2.PUT_OUTCOME_STORED


def test_reads_beyond_the_bound_are_refused(narrow: Wire, name: str, seed: int) -> None:
    """Goal: the same for reads. Method: readers of 4 MiB that do not read on, and one more."""
    scope = narrow.create(name, OPAQUE)
    block = Block(draw_bytes(64, seed), draw_bytes(4 * MIB, seed))
    narrow.put(scope, [block])
    request = cache_pb2.GetRequest(
        context=request_context(),
        namespace=scope.ref,
        items=[cache_pb2.GetItem(block=block.ref)] * 8,
    )
    calls = [narrow.cache.Get(request, timeout=30) for _ in range(GETS)]
    try:
        assert all(next(call).payload for call in calls)
        with pytest.raises(OverloadedError) as caught:
            narrow.get_blocks(scope, [block])
        assert caught.value.field == "concurrent_gets_max"
    finally:
        for call in calls:
            call.cancel()
    got = eventually(
        lambda: refused_or_read(narrow, scope, block), "reads are served again", holds=bool
    )
    assert got == block.payload


def refused_or_read(wire: Wire, scope: Scope, block: Block) -> bytes:
    """Return the block's bytes, or none while the node refuses."""
    try:
        return bytes(wire.get_blocks(scope, [block])[0].data)
    except OverloadedError:
        return b""


def test_a_callers_deadline_ends_its_call(narrow: Wire, name: str, seed: int) -> None:
    """Goal: a store that stands still ends at its caller's deadline, and its memory comes back.

    Method: a store with a deadline of half a second that never sends its last byte.
    """
    scope = narrow.create(name, OPAQUE)
    block = Block(draw_bytes(64, seed), draw_bytes(SIZE, seed))

    def standing() -> Iterator[cache_pb2.PutRequest]:
        yield from first_bytes(put_messages(scope, [block]), SIZE - 1)
        eventually(call.done, "the call is over")

    call = narrow.cache.Put.future(standing(), timeout=0.5)
    with pytest.raises(DeadlineError), typed(narrow.address):
        call.result(timeout=0.5 + SLACK_S)
    eventually(lambda: narrow.status().staged_bytes == 0, "memory comes back")
    assert narrow.lookup(scope, [block.key]).present_blocks == 0
