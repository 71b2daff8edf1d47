"""The engine's front: bounded ticks, time, refusals, and the numbers that operators see."""

from __future__ import annotations

import pytest

from kvorum.core.errors import (
    InternalError,
    InvalidArgumentError,
    NamespaceNotFoundError,
    OverloadedError,
    TooLargeError,
)
from kvorum.node.engine import Engine, EngineSettings, NamespaceUsage
from kvorum.node.engine.events import (
    AbortReplica,
    AbortWrite,
    ApplyNamespace,
    BeginRead,
    CommitReplica,
    CommitWrite,
    Corrupt,
    Delete,
    EndRead,
    Event,
    Lookup,
    Miss,
    NamespaceId,
    Policy,
    ReadGrant,
    ReadItem,
    Stat,
    Tick,
    Touch,
)
from tests.unit.node.engine.prompts import PAGE, fingerprint, key_of, record
from tests.unit.node.engine.steps import define, lookup, put

SPACE = NamespaceId("t", "chat")
DIGEST = fingerprint().digest()
TEN = "abcdefghij"


def engine_of(pages: int = 16, *, tick_items_max: int = 100, open_reads_max: int = 100) -> Engine:
    settings = EngineSettings(
        capacity_bytes=pages * PAGE, tick_items_max=tick_items_max, open_reads_max=open_reads_max
    )
    return Engine(settings)


def test_a_tick_expires_a_bounded_number_and_the_next_goes_on() -> None:
    engine = engine_of(tick_items_max=3)
    define(engine, "chat", Policy(2, ttl_ms=1_000))
    for word in TEN:
        put(engine, "chat", word)
    left = []
    for _ in range(5):
        engine.handle(Tick(), 1_000)
        left.append(engine.status().blocks)
    assert left == [7, 4, 1, 0, 0]


def test_a_tick_frees_a_bounded_number_of_a_deleted_namespaces_blocks() -> None:
    engine = engine_of(tick_items_max=4)
    define(engine, "chat")
    for word in TEN:
        put(engine, "chat", word)
    engine.handle(ApplyNamespace(record("chat", revision=2, deleted=True)), 0)
    assert engine.status().blocks == 0
    used = []
    for _ in range(4):
        engine.handle(Tick(), 0)
        used.append(engine.status().used_bytes // PAGE)
    assert used == [6, 2, 0, 0]


def test_a_shorter_policy_reaches_every_block_a_few_at_a_time() -> None:
    engine = engine_of(tick_items_max=4)
    define(engine, "chat")
    for word in TEN:
        put(engine, "chat", word)
    shorter = record("chat", revision=2, policy=Policy(2, ttl_ms=10))
    engine.handle(ApplyNamespace(shorter), 50)
    # Out of sight at once, out of memory tick by tick.
    assert lookup(engine, "chat", "a", now_ms=50).blocks[0].miss is Miss.EXPIRED
    for _ in range(8):
        engine.handle(Tick(), 50)
    assert engine.status().used_bytes == 0
    assert engine.status().counters["expired_blocks"] == len(TEN)


def test_time_that_runs_backwards_stands_still() -> None:
    engine = engine_of()
    define(engine, "chat", Policy(2, ttl_ms=1_000))
    put(engine, "chat", "a", now_ms=5_000)
    (info,), _ = engine.handle(Stat(SPACE, DIGEST, (key_of("a"),)), 3_000)
    assert (info.miss, info.age_ms) == (None, 0)


class Stranger(Event[None]):
    """An event that the engine does not know."""


@pytest.mark.parametrize(
    "event",
    [
        Stranger(),
        AbortWrite(99),
        AbortReplica(99),
        EndRead(99),
        Corrupt(99),
    ],
)
def test_a_defect_of_the_driver_is_loud(event: Event[None]) -> None:
    with pytest.raises(InternalError):
        engine_of().handle(event, 0)


def test_a_commit_of_nothing_is_answered_as_a_defect() -> None:
    assert isinstance(engine_of().handle(CommitWrite(99), 0)[0], InternalError)
    assert isinstance(engine_of().handle(CommitReplica(99), 0)[0], InternalError)


def test_what_is_no_request_is_refused_whole_and_counts_nothing() -> None:
    engine = engine_of()
    define(engine, "chat")
    key = key_of("a")
    refused: list[tuple[Event[object], type[Exception]]] = [
        (Lookup(NamespaceId("t", "other"), DIGEST, (key,), (True,), 0), NamespaceNotFoundError),
        (Lookup(SPACE, DIGEST, (key,), (), 0), InvalidArgumentError),
        (Lookup(SPACE, DIGEST, (b"short",), (True,), 0), InvalidArgumentError),
        (Lookup(SPACE, DIGEST, (key,) * 8_193, (True,) * 8_193, 0), TooLargeError),
        (Touch(SPACE, DIGEST, (key,) * 1_025, 0), TooLargeError),
        (Delete(SPACE, DIGEST, (key,), (16_384,)), InvalidArgumentError),
        (Delete(SPACE, DIGEST, (key,), ()), InvalidArgumentError),
    ]
    before = engine.status()
    for event, error in refused:
        with pytest.raises(error):
            engine.handle(event, 0)
    assert engine.status() == before


def test_another_fingerprint_is_a_typed_miss_everywhere() -> None:
    engine = engine_of()
    define(engine, "chat")
    put(engine, "chat", "a")
    other, key = fingerprint(model="n").digest(), key_of("a")
    reply, _ = engine.handle(Lookup(SPACE, other, (key, key), (True, False), 1_000), 0)
    assert [view.miss for view in reply.blocks] == [Miss.FINGERPRINT, Miss.STALE_EPOCH]
    assert (reply.present, reply.lease_until_ms) == (0, None)
    assert engine.handle(BeginRead(SPACE, other, (ReadItem(key, 0),)), 0)[0] == (Miss.FINGERPRINT,)
    assert engine.handle(Touch(SPACE, other, (key,), 0), 0)[0] == ((Miss.FINGERPRINT,), None)
    assert engine.handle(Stat(SPACE, other, (key,)), 0)[0][0].miss is Miss.FINGERPRINT
    with pytest.raises(InvalidArgumentError):
        engine.handle(Delete(SPACE, other, (key,), (0,)), 0)
    assert engine.status().blocks == 1


def test_reads_are_bounded() -> None:
    engine = engine_of(open_reads_max=2)
    define(engine, "chat")
    put(engine, "chat", "a")
    wanted = (ReadItem(key_of("a"), 0),)
    grants, _ = engine.handle(BeginRead(SPACE, DIGEST, wanted * 2), 0)
    with pytest.raises(OverloadedError):
        engine.handle(BeginRead(SPACE, DIGEST, wanted), 0)
    with pytest.raises(OverloadedError):
        engine.snapshot(SPACE, key_of("a"), 0)
    assert isinstance(grants[0], ReadGrant)
    engine.handle(EndRead(grants[0].id), 0)
    assert engine.snapshot(SPACE, key_of("a"), 0) is not None


def test_the_status_adds_up() -> None:
    engine = engine_of(16)
    define(engine, "chat")
    define(engine, "other")
    put(engine, "chat", "a", pages=2)
    put(engine, "other", "a")
    lookup(engine, "chat", "ab")
    lookup(engine, "other", "b")
    status = engine.status()
    assert status.arena_bytes == 16 * PAGE
    assert status.used_bytes == 3 * PAGE
    assert status.largest_free_bytes == 13 * PAGE
    assert (status.blocks, status.candidates) == (2, 2)
    assert (status.lookup_hits, status.lookup_misses) == (1, 2)
    assert status.misses == {Miss.NEVER_STORED: 2}
    assert status.counters["stored_blocks"] == 2
    assert status.namespaces == (
        NamespaceUsage(SPACE, 1, 2 * PAGE, 0, 1, 1),
        NamespaceUsage(NamespaceId("t", "other"), 1, PAGE, 0, 0, 1),
    )


def test_one_list_of_events_has_one_outcome() -> None:
    """Goal: replaying events gives equal replies, effects and state; nothing random is in it."""
    outcomes = []
    for _ in range(2):
        engine = engine_of(4)
        define(engine, "chat")
        answers = [put(engine, "chat", word, now_ms=now) for now, word in enumerate(TEN)]
        outcomes.append((repr(answers), engine.status()))
    assert outcomes[0] == outcomes[1]
