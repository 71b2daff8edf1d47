"""Corners of storing and dropping that the model meets too rarely."""

from __future__ import annotations

from dataclasses import replace

from kvorum.core.errors import FingerprintError, NamespaceNotFoundError
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import (
    ApplyNamespace,
    BeginRead,
    BeginWrite,
    CommitWrite,
    Condition,
    Corrupt,
    EndRead,
    NamespaceId,
    Outcome,
    ReadGrant,
    ReadItem,
    Tick,
    WriteGrant,
    WriteItem,
    WriteReply,
)
from tests.unit.node.engine.invariants import check_invariants
from tests.unit.node.engine.prompts import PAGE, fingerprint, item, key_of, record
from tests.unit.node.engine.steps import define, lookup, put

SPACE = NamespaceId("t", "chat")


def engine_of(parts: int = 1) -> Engine:
    engine = Engine(EngineSettings(capacity_bytes=16 * PAGE))
    engine.handle(ApplyNamespace(record("chat", parts)), 0)
    return engine


def begin(engine: Engine, *items: WriteItem, parts: int = 1) -> list[WriteGrant]:
    digest = fingerprint(parts).digest()
    event = BeginWrite(SPACE, digest, "w", Condition.IF_ABSENT, items)
    grants = []
    for answer in engine.handle(event, 0)[0]:
        assert isinstance(answer, WriteGrant)
        grants.append(answer)
    return grants


def commit(engine: Engine, grant: WriteGrant) -> Outcome:
    answer, _ = engine.handle(CommitWrite(grant.id), 0)
    assert isinstance(answer, WriteReply)
    return answer.outcome


def test_a_store_where_none_may_be_is_refused_item_by_item() -> None:
    engine = engine_of()
    items = (item("a"), item("b"))
    for space, digest, error in (
        (NamespaceId("t", "other"), fingerprint().digest(), NamespaceNotFoundError),
        (SPACE, fingerprint(model="n").digest(), FingerprintError),
    ):
        event = BeginWrite(space, digest, "w", Condition.IF_ABSENT, items)
        answers, effects = engine.handle(event, 0)
        assert [type(answer) for answer in answers] == [error, error]
        assert effects == ()


def test_a_part_that_arrives_twice_at_once_is_kept_once() -> None:
    """A client that lost its connection sends a part again while the first is still open."""
    engine = engine_of(2)
    first, again = begin(engine, item("a", 0, 2), item("a", 0, 2), parts=2)
    assert engine.status().staged_bytes == 2 * PAGE
    assert commit(engine, first) is Outcome.STAGED
    assert commit(engine, again) is Outcome.STAGED
    assert engine.status().staged_bytes == PAGE
    (last,) = begin(engine, item("a", 1, 2), parts=2)
    assert commit(engine, last) is Outcome.STORED
    check_invariants(engine)


def test_a_block_is_linked_only_to_the_block_right_before_it() -> None:
    """Goal: a wrong announcement makes an orphan, not a loop or a false prefix."""
    engine = engine_of()
    wrong = replace(item("aa"), key=key_of("x"), index=2)  # says that it comes two after "a"
    (grant,) = begin(engine, wrong)
    commit(engine, grant)
    put(engine, "chat", "a")
    put(engine, "chat", "aa")
    entries = engine._state.namespaces.get(SPACE).entries
    assert entries[key_of("x")].above is None
    assert entries[key_of("aa")].above is entries[key_of("a")]
    assert lookup(engine, "chat", "aa").present == 2


def test_a_deleted_namespaces_block_that_goes_early_is_not_dropped_twice() -> None:
    engine = engine_of()
    put(engine, "chat", "a")
    digest = fingerprint().digest()
    (grant,), _ = engine.handle(BeginRead(SPACE, digest, (ReadItem(key_of("a"), 0),)), 0)
    assert isinstance(grant, ReadGrant)
    engine.handle(ApplyNamespace(record("chat", revision=2, deleted=True)), 0)
    engine.handle(Corrupt(grant.id), 0)
    engine.handle(EndRead(grant.id), 0)
    engine.handle(Tick(), 0)
    status = engine.status()
    assert (status.used_bytes, status.counters["unnamed_blocks"]) == (0, 1)
    check_invariants(engine)


def test_members_exchange_every_namespace_and_tombstone() -> None:
    engine = engine_of()
    define(engine, "other")
    gone = record("other", revision=2, deleted=True)
    engine.handle(ApplyNamespace(gone), 0)
    assert set(engine.namespaces()) == {record("chat"), gone}
    assert engine.namespace(NamespaceId("t", "other")) == gone
    assert engine.namespace(NamespaceId("t", "none")) is None
