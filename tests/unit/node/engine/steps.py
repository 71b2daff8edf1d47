"""Whole steps on an engine for tests that are about something else."""

from __future__ import annotations

from kvorum.core.errors import KvorumError
from kvorum.node.engine import Engine
from kvorum.node.engine.events import (
    ApplyNamespace,
    BeginWrite,
    CommitWrite,
    Condition,
    Lookup,
    LookupReply,
    NamespaceId,
    Policy,
    WriteGrant,
    WriteReply,
)
from tests.unit.node.engine.prompts import PAGE, fingerprint, item, key_of, record, words


def define(engine: Engine, name: str, policy: Policy | None = None) -> None:
    """Make a namespace whose blocks have one part."""
    engine.handle(ApplyNamespace(record(name, policy=policy)), 0)


def put(  # noqa: PLR0917  # reads as the block's name followed by what is odd about it
    engine: Engine,
    name: str,
    word: str,
    pages: int = 1,
    content: int = 1,
    now_ms: int = 0,
    condition: Condition = Condition.IF_ABSENT,
) -> WriteReply | KvorumError:
    """Store a block of one part; return what came of it."""
    one = item(word, frame_sizes=(PAGE,) * pages, frame_crc32c=(content,) * pages)
    digest = fingerprint().digest()
    event = BeginWrite(NamespaceId("t", name), digest, "w", condition, (one,))
    (answer,), _ = engine.handle(event, now_ms)
    if isinstance(answer, WriteGrant):
        return engine.handle(CommitWrite(answer.id), now_ms)[0]
    return answer


def lookup(
    engine: Engine, name: str, prompt: str, now_ms: int = 0, lease_ms: int = 0
) -> LookupReply:
    """Look a whole prompt up."""
    keys = tuple(key_of(word) for word in words(prompt))
    event = Lookup(
        NamespaceId("t", name), fingerprint().digest(), keys, (True,) * len(keys), lease_ms
    )
    return engine.handle(event, now_ms)[0]
