"""What a scenario plays on: an engine, its driver's arena, and short names for what it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kvorum.core.errors import KvorumError
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import (
    Effect,
    Event,
    Extent,
    Miss,
    NamespaceId,
    NamespaceRecord,
    Replicate,
    WriteItem,
)
from tests.unit.node.engine.arena import TaggedArena
from tests.unit.node.engine.invariants import check_invariants
from tests.unit.node.engine.prompts import PAGE, key_of

ReplyT = TypeVar("ReplyT")

START_MS = 1_000_000


class Stage:
    """An engine and everything that gives its numbers names.

    Attributes:
        engine: the engine; `begin` makes it.
        now_ms: present time.
        arena: what the simulated driver wrote where.
        records: the namespaces of the scenario, by name.
        extents: the extents of every grant so far with the block they are for, by grant.
    """

    def __init__(self) -> None:
        self.engine = Engine(EngineSettings(capacity_bytes=16 * PAGE))
        self.now_ms = START_MS
        self.arena = TaggedArena()
        self.records: dict[str, NamespaceRecord] = {}
        self.extents: dict[int, tuple[tuple[Extent, ...], str]] = {}
        self._groups: dict[int, str] = {}
        self._words: dict[bytes, str] = {}

    def handle(self, event: Event[ReplyT], show: Callable[[ReplyT], list[str]]) -> list[str]:
        """Let the engine handle an event; return its reply and its effects as lines."""
        try:
            reply, effects = self.engine.handle(event, self.now_ms)
        except KvorumError as error:
            return [self.refusal(error)]
        finally:
            check_invariants(self.engine)
        return show(reply) + [self.effect(one) for one in effects]

    def name(self, name: str) -> tuple[NamespaceId, bytes]:
        """Return the name and the fingerprint digest of a namespace."""
        record = self.records[name]
        return record.id, record.fingerprint.digest()

    def key(self, word: str) -> bytes:
        """Return a block's key, and remember its word."""
        key = key_of(word)
        self._words[key] = word
        return key

    def note(self, one: WriteItem, word: str) -> WriteItem:
        """Remember the word of an announced block."""
        self._words[one.key] = word
        return one

    def group(self, number: int) -> str:
        """Return a group's short name: g1, g2 ... in order of appearance; peers' are numbers."""
        if number < 1 << 16:
            return f"#{number}"
        return self._groups.setdefault(number, f"g{len(self._groups) + 1}")

    def group_number(self, name: str) -> int:
        """Return the group of a short name."""
        if name.startswith("#"):
            return int(name[1:])
        return next(number for number, known in self._groups.items() if known == name)

    def word(self, key: bytes) -> str:
        """Return the short name of a block."""
        return self._words[key]

    def effect(self, effect: Effect) -> str:
        """Return an effect as a line."""
        word, clock = self.word(effect.key), clock_text(effect.clock)
        if isinstance(effect, Replicate):
            how = " overwrite" if effect.overwrite else ""
            return f"-> replicate {word} to {effect.replicas} at {clock}{how}"
        return f"-> tombstone {word} to {effect.replicas} at {clock}"

    @staticmethod
    def refusal(error: KvorumError) -> str:
        """Return an error as a line: its class, the field at fault and its limit."""
        return f"{type(error).__name__} {error.field} limit {error.limit or '-'}"


def pages(extents: tuple[Extent, ...]) -> str:
    """Return where extents lie, in granules."""
    runs = []
    for extent in extents:
        first, last = extent.offset // PAGE, (extent.offset + extent.size - 1) // PAGE
        runs.append(f"{first}" if first == last else f"{first}-{last}")
    return "page " + ",".join(runs)


def miss_text(miss: Miss | None) -> str:
    """Return a miss as a word; a hit is "present"."""
    return "present" if miss is None else miss.name


def clock_text(hybrid: int) -> str:
    """Return a hybrid time relative to the scenario's start."""
    counter = hybrid & 0xFFFF
    return f"{(hybrid >> 16) - START_MS}ms" + (f".{counter}" if counter else "")


def clock_number(text: str) -> int:
    """Return the hybrid time of a number of milliseconds after the scenario's start."""
    return (START_MS + int(text)) << 16
