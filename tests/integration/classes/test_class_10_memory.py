"""Bug class 10, unbounded memory: the arena is a hard limit, whatever is stored and pinned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import NamespacePolicy
from kvorum.core.errors import ArenaFullError, KvorumError, OverloadedError, TooLargeError
from kvorum.v1 import cache_pb2, cluster_pb2, status
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import MIB, ProxiedCluster, pid_of
from tests.integration.support.memory import resident_bytes
from tests.integration.support.prompts import PATIENCE_S
from tests.integration.support.settling import eventually
from tests.integration.support.values import OPAQUE, draw_bytes, draw_tokens
from tests.integration.support.wire import Block, Scope, Wire, put_messages, request_context

ARENA = 32 * MIB
OVERHEAD = 150 * MIB
PART_MAX = ARENA // 4
HUGE = 2 * MIB
TINY = 100
STORED = cache_pb2.PUT_OUTCOME_STORED


@pytest.fixture(scope="module")
def small() -> Iterator[LocalCluster]:
    """One node of 32 MiB that these tests overfill."""
    with LocalCluster(LocalSettings(zones=1, memory_bytes=ARENA)) as running:
        yield running


@contextmanager
def watched(pid: int) -> Iterator[list[int]]:
    """Sample the resident memory of a process all the while; the list grows."""
    samples = [resident_bytes(pid)]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            samples.append(resident_bytes(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()
        samples.append(resident_bytes(pid))


def huge(seed: int, number: int, payload: bytes) -> Block:
    """Return a block of 2 MiB."""
    return Block(draw_bytes(64, seed, 1, number), payload)


def pin_until_refused(wire: Wire, scope: Scope, seed: int, payload: bytes) -> list[Block]:
    """Store and pin until a pin or a store is refused; return what is pinned."""
    pinned: list[Block] = []
    for number in range(2 * ARENA // HUGE):
        block = huge(seed, number, payload)
        [result] = wire.put(scope, [block])
        if result.outcome != STORED:
            assert isinstance(status.from_detail(result.error), ArenaFullError)
            return pinned
        try:
            assert wire.pin(scope, [block]) == [0]
        except OverloadedError:
            return pinned
        pinned.append(block)
    raise AssertionError("more than the arena was pinned")


def test_twenty_times_the_capacity(small: LocalCluster, name: str, seed: int) -> None:
    """Goal: resident memory stays within arena + 150 MB; eviction goes on; pinned blocks stay.

    Method: pin as much as the node allows, then write twenty times the arena in huge blocks and
    in tiny ones, in turn, while a thread samples the resident memory of the process.
    """
    payload = draw_bytes(HUGE, seed)
    with Wire(small.endpoints[0]) as wire, watched(pid_of(small, "kvorum-a-0")) as samples:
        scope = wire.create(name, OPAQUE)
        pinned = pin_until_refused(wire, scope, seed, payload)
        state = wire.status()
        assert state.pinned_bytes >= ARENA // 3
        written = 0
        for number in range(20 * ARENA // HUGE):
            [result] = wire.put(scope, [huge(seed, 10_000 + number, payload)])
            assert result.outcome == STORED
            written += HUGE
            if number % 40 == 0:
                tiny = [
                    Block(draw_bytes(64, seed, 2, number, i), draw_bytes(TINY, seed, i))
                    for i in range(1_000)
                ]
                assert {r.outcome for r in wire.put(scope, tiny)} == {STORED}
        state = wire.status()
        assert written >= 20 * ARENA
        assert state.used_bytes <= state.arena_bytes == ARENA
        assert state.counters["evicted_blocks"] > 0
        got = wire.get_blocks(scope, pinned)
        assert all(bytes(one.data) == payload for one in got)
        assert wire.unpin(scope, pinned) == [0] * len(pinned)
    assert max(samples) <= ARENA + OVERHEAD, f"peak {max(samples) / MIB:.0f} MiB"


def test_a_full_arena_is_a_typed_error_and_unpinning_heals_it(
    small: LocalCluster, name: str, seed: int
) -> None:
    """Goal: what cannot be stored is refused as ARENA_FULL, at once, and nothing is lost.

    Method: pin all that may be pinned and lease the rest; the next store is refused and leaves
    nothing; after the pins end, the same store succeeds.
    """
    payload = draw_bytes(HUGE, seed)
    with Wire(small.endpoints[0]) as wire:
        scope = wire.create(name, OPAQUE)
        pinned = pin_until_refused(wire, scope, seed, payload)
        refused, error = store_until_refused(wire, scope, seed, payload)
        assert isinstance(error, ArenaFullError)
        assert error.retryable
        assert wire.lookup(scope, [refused.key]).present_blocks == 0
        state = wire.status()
        assert state.staged_bytes == 0
        assert state.counters["refused_arena_full"] > 0

        assert wire.unpin(scope, pinned) == [0] * len(pinned)
        assert [r.outcome for r in wire.put(scope, [refused])] == [STORED]
        assert bytes(wire.get_blocks(scope, [refused])[0].data) == payload


def store_until_refused(
    wire: Wire, scope: Scope, seed: int, payload: bytes
) -> tuple[Block, KvorumError]:
    """Store and lease until a store is refused; return what was refused, and why."""
    for number in range(2 * ARENA // HUGE):
        block = huge(seed, 50_000 + number, payload)
        [result] = wire.put(scope, [block])
        if result.outcome != STORED:
            return block, status.from_detail(result.error)
        assert wire.lookup(scope, [block.key], lease_ms=60_000).present_blocks == 1
    raise AssertionError("more than the arena was leased")


def test_a_promise_of_much_costs_nothing(small: LocalCluster, name: str, seed: int) -> None:
    """Goal: announced sizes alone take no memory, and one too large is refused by type.

    Method: announce a thousand parts of the largest size and send nothing; then announce one of
    more than a node takes.
    """
    with Wire(small.endpoints[0]) as wire:
        scope = wire.create(name, OPAQUE)
        before = resident_bytes(pid_of(small, "kvorum-a-0"))
        used = wire.status().used_bytes
        block = Block(draw_bytes(64, seed), b"x")

        def announce(size: int, count: int) -> list[cache_pb2.PutResult]:
            opening = next(put_messages(scope, [block]))
            item = opening.open.items[0]
            item.frame_sizes[:] = [size]
            del opening.open.items[:]
            for number in range(count):
                item.block.key = draw_bytes(64, seed, number)
                opening.open.items.append(item)
            return wire.send(iter([opening]))

        results = announce(PART_MAX, 1_000)
        assert {r.outcome for r in results} == {cache_pb2.PUT_OUTCOME_REFUSED}
        assert wire.status().used_bytes == used
        assert resident_bytes(pid_of(small, "kvorum-a-0")) - before < OVERHEAD // 2
        with pytest.raises(TooLargeError) as caught:
            announce(PART_MAX + 1, 1)
        assert "frame_sizes" in caught.value.field
        assert caught.value.limit


def test_the_largest_part_can_be_stored(small: LocalCluster, name: str, seed: int) -> None:
    """Goal: what the limits allow works. Method: store and read the largest part there may be."""
    payload = draw_bytes(PART_MAX, seed)
    with Wire(small.endpoints[0]) as wire:
        scope = wire.create(name, OPAQUE)
        block = Block(draw_bytes(64, seed), payload)
        [result] = wire.put(scope, [block])
        assert result.outcome == STORED, result.error
        assert bytes(wire.get_blocks(scope, [block])[0].data) == payload


@pytest.mark.slow
def test_a_hung_peer_costs_no_memory(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: what waits for a peer is bounded; the rest is counted, and the peer catches up.

    Method: stop one of three nodes and store five times the arena for all three zones; the nodes
    that store stay within arena + 150 MB. When the peer goes on, nothing is waiting any more.
    """
    payload = draw_bytes(HUGE, seed)
    client = connect(proxied.endpoints, name, OPAQUE, policy=NamespacePolicy(replicas=3))
    client.connect()
    hung = proxied.processes["kvorum-c-0"]
    arena = status_of(proxied, "kvorum-a-0").arena_bytes
    with ExitStack() as stack:
        watches = [stack.enter_context(watched(proxied.pid(f"kvorum-{z}-0"))) for z in "ab"]
        hung.pause()
        for number in range(5 * arena // (4 * HUGE)):
            tokens = draw_tokens(4 * 16, seed, number)
            result = client.store(tokens, [payload] * 4, deadline_s=PATIENCE_S)
            assert not result.refused, result.errors
        lags = [
            peer.lag_entries + peer.overflowed_entries
            for storing in ("kvorum-a-0", "kvorum-b-0")
            for peer in status_of(proxied, storing).peers
            if peer.node == "kvorum-c-0"
        ]
        assert max(lags) > 0
        hung.resume()
        for storing in ("kvorum-a-0", "kvorum-b-0"):
            eventually(
                lambda: [p.lag_entries for p in status_of(proxied, storing).peers],  # noqa: B023
                "nothing waits any more",
                holds=lambda left: not any(left),
            )
    for samples in watches:
        assert max(samples) <= arena + OVERHEAD, f"peak {max(samples) / MIB:.0f} MiB"


def status_of(proxied: ProxiedCluster, name: str) -> cluster_pb2.GetNodeStatusResponse:
    """Return the state of a member."""
    with Wire(proxied.file.map.member(name).address) as wire:
        return wire.status()


def test_a_reader_that_does_not_read_costs_no_memory(
    small: LocalCluster, name: str, seed: int
) -> None:
    """Goal: slow readers slow themselves. Method: open reads of 16 MiB each and read nothing."""
    payload = draw_bytes(HUGE, seed)
    with Wire(small.endpoints[0]) as wire, watched(pid_of(small, "kvorum-a-0")) as samples:
        scope = wire.create(name, OPAQUE)
        block = huge(seed, 0, payload)
        wire.put(scope, [block])
        request = cache_pb2.GetRequest(
            context=request_context(),
            namespace=scope.ref,
            items=[cache_pb2.GetItem(block=block.ref)] * 8,
        )
        calls = [wire.cache.Get(request, timeout=30) for _ in range(16)]
        firsts = [next(iter(call)) for call in calls]
        assert all(first.payload for first in firsts)
        for number in range(2 * ARENA // HUGE):
            [result] = wire.put(scope, [huge(seed, 1 + number, payload)])
            assert result.outcome == STORED
        for call in calls:
            call.cancel()
    assert max(samples) <= ARENA + OVERHEAD, f"peak {max(samples) / MIB:.0f} MiB"
