"""Room for a part: what goes for it, what stays, and that nothing goes in vain."""

from __future__ import annotations

from kvorum.core.errors import ArenaFullError, OverloadedError
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import (
    ApplyNamespace,
    BeginWrite,
    Condition,
    NamespaceId,
    Outcome,
    Pin,
    WriteReply,
)
from kvorum.node.engine.payloads import index_bytes
from tests.unit.node.engine.invariants import check_invariants
from tests.unit.node.engine.prompts import PAGE, fingerprint, item, key_of, record
from tests.unit.node.engine.steps import define, lookup, put


def stored(answer: object) -> bool:
    return isinstance(answer, WriteReply) and answer.outcome is Outcome.STORED


def test_a_large_part_among_small_ones_evicts_a_run_and_not_the_arena() -> None:
    """Goal: one large store costs about its own size in evictions, even when ages lie scattered.

    Method: 64 blocks of one page whose ages alternate between the two halves of the arena; the
    oldest are never neighbours.
    """
    engine = Engine(EngineSettings(capacity_bytes=64 * PAGE))
    define(engine, "chat")
    words = [chr(0x100 + number) for number in range(64)]
    for word in words:
        assert stored(put(engine, "chat", word))
    for now_ms, number in enumerate(range(0, 64 * 37, 37), start=1):
        lookup(engine, "chat", words[number % 64], now_ms=now_ms)
    assert stored(put(engine, "chat", "x", pages=8, now_ms=1_000))
    assert engine.status().counters["evicted_blocks"] <= 3 * 8
    check_invariants(engine)


def test_a_store_that_cannot_succeed_evicts_nothing() -> None:
    engine = Engine(EngineSettings(capacity_bytes=8 * PAGE, staged_bytes_max=8 * PAGE))
    define(engine, "chat")
    for word in "abcdef":
        put(engine, "chat", word)
    pins = tuple(key_of(word) for word in "abcd")
    engine.handle(Pin(NamespaceId("t", "chat"), fingerprint().digest(), pins, True), 0)
    answer = put(engine, "chat", "x", pages=5)
    assert isinstance(answer, ArenaFullError)
    assert answer.retryable
    assert engine.status().blocks == 6
    assert stored(put(engine, "chat", "x", pages=4))


def test_small_blocks_are_bounded_by_what_describes_them() -> None:
    """Goal: a flood of tiny blocks costs bounded memory, not one description for each granule."""
    limit = 50 * index_bytes(1)
    engine = Engine(EngineSettings(capacity_bytes=1_000 * PAGE, index_bytes_max=limit))
    define(engine, "chat")
    for number in range(200):
        assert stored(put(engine, "chat", chr(0x100 + number)))
    status = engine.status()
    assert (status.blocks, status.counters["evicted_blocks"]) == (50, 150)
    assert status.index_bytes <= limit


def test_a_full_index_of_blocks_that_must_stay_refuses() -> None:
    engine = Engine(EngineSettings(capacity_bytes=100 * PAGE, index_bytes_max=3 * index_bytes(1)))
    define(engine, "chat")
    for word in "abc":
        put(engine, "chat", word)
    keys = tuple(key_of(word) for word in "abc")
    engine.handle(Pin(NamespaceId("t", "chat"), fingerprint().digest(), keys, True), 0)
    answer = put(engine, "chat", "d")
    assert isinstance(answer, OverloadedError)
    assert answer.field == "engine.index_bytes_max"


def test_a_part_of_many_frames_counts_for_more() -> None:
    engine = Engine(EngineSettings(capacity_bytes=100 * PAGE))
    define(engine, "chat")
    one = item("a", frame_sizes=(4,) * 1_024, frame_crc32c=(1,) * 1_024)
    event = BeginWrite(
        NamespaceId("t", "chat"), fingerprint().digest(), "w", Condition.IF_ABSENT, (one,)
    )
    engine.handle(event, 0)
    assert engine.status().index_bytes == index_bytes(1_024) > 10 * index_bytes(1)


def test_the_memory_of_a_deleted_namespace_is_there_before_the_next_tick() -> None:
    engine = Engine(EngineSettings(capacity_bytes=4 * PAGE, staged_bytes_max=4 * PAGE))
    define(engine, "old")
    define(engine, "chat")
    for word in "abcd":
        put(engine, "old", word)
    engine.handle(ApplyNamespace(record("old", revision=2, deleted=True)), 0)
    assert stored(put(engine, "chat", "x", pages=4))
    assert engine.status().counters["evicted_blocks"] == 0


def test_leases_end_when_room_is_needed_and_not_before() -> None:
    engine = Engine(EngineSettings(capacity_bytes=2 * PAGE))
    define(engine, "chat")
    for word in "ab":
        put(engine, "chat", word)
        lookup(engine, "chat", word, lease_ms=1_000)
    assert isinstance(put(engine, "chat", "c", now_ms=999), ArenaFullError)
    assert stored(put(engine, "chat", "c", now_ms=1_000))
