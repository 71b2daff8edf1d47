"""What is remembered of blocks that are gone, and for how long."""

from __future__ import annotations

from kvorum.node.engine.clock import Clock
from kvorum.node.engine.entries import Namespace
from kvorum.node.engine.events import Miss
from kvorum.node.engine.history import History, Tombstones
from tests.unit.node.engine.prompts import key_of, record

SPACE = Namespace(record("chat"), 1)
OTHER = Namespace(record("other"), 2)


def test_the_latest_reason_counts_and_the_oldest_blocks_are_forgotten() -> None:
    history = History(2)
    history.record(SPACE, key_of("a"), Miss.EVICTED)
    history.record(SPACE, key_of("b"), Miss.EXPIRED)
    history.record(SPACE, key_of("a"), Miss.CHECKSUM)
    history.record(SPACE, key_of("c"), Miss.INVALIDATED)
    reasons = [history.reason(SPACE, key_of(word)) for word in "abc"]
    assert reasons == [Miss.CHECKSUM, Miss.NEVER_STORED, Miss.INVALIDATED]
    assert len(history) == 2


def test_a_reason_belongs_to_one_namespace_and_ends_when_the_block_is_back() -> None:
    history = History(10)
    history.record(SPACE, key_of("a"), Miss.EVICTED)
    assert history.reason(OTHER, key_of("a")) is Miss.NEVER_STORED
    history.forget(SPACE, key_of("a"))
    assert history.reason(SPACE, key_of("a")) is Miss.NEVER_STORED


def test_no_history_is_kept_when_none_is_asked_for() -> None:
    history = History(0)
    history.record(SPACE, key_of("a"), Miss.EVICTED)
    assert len(history) == 0


def tombstones(count_max: int, ttl_ms: int) -> tuple[Tombstones, Clock]:
    clock = Clock(0)
    return Tombstones(count_max, ttl_ms, clock), clock


def test_the_latest_delete_counts() -> None:
    deleted, _ = tombstones(10, 1_000)
    deleted.record(SPACE, key_of("a"), 7)
    deleted.record(SPACE, key_of("a"), 5)
    assert deleted.latest(SPACE, key_of("a")) == 7
    assert deleted.latest(OTHER, key_of("a")) == 0


def test_tombstones_are_bounded_in_number() -> None:
    deleted, _ = tombstones(2, 1_000)
    for word in "abc":
        deleted.record(SPACE, key_of(word), 1)
    assert [deleted.latest(SPACE, key_of(word)) for word in "abc"] == [0, 1, 1]
    assert deleted.overflowed == 1


def test_tombstones_are_bounded_in_age_and_go_a_few_at_a_time() -> None:
    deleted, clock = tombstones(10, 1_000)
    for word in "abc":
        deleted.record(SPACE, key_of(word), 1)
    clock.advance(500)
    deleted.record(SPACE, key_of("a"), 2)  # deleted again: it is young again
    clock.advance(1_000)
    assert deleted.expire(1) == 1
    assert deleted.expire(10) == 1
    assert [deleted.latest(SPACE, key_of(word)) for word in "abc"] == [2, 0, 0]
