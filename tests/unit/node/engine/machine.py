"""The ground of the state machine: the engine, its model, the driver's arena and the invariants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvorum.core.errors import NamespaceNotFoundError
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.entries import Namespace
from kvorum.node.engine.events import (
    ApplyNamespace,
    BeginRead,
    BeginReplica,
    BeginWrite,
    Condition,
    Effect,
    Event,
    Extent,
    Miss,
    NamespaceId,
    Policy,
    ReplicaBlock,
    Tick,
    WriteItem,
)
from tests.unit.node.engine.arena import TaggedArena
from tests.unit.node.engine.invariants import check_invariants
from tests.unit.node.engine.model import Model
from tests.unit.node.engine.prompts import PAGE, fingerprint, key_of, record

ReplyT = TypeVar("ReplyT")

PARTS = {"one": 1, "two": 2}
POLICIES = {
    "one": (Policy(2), Policy(2, quota_bytes=6 * PAGE), Policy(2, idle_ttl_ms=15_000)),
    "two": (Policy(3), Policy(3, ttl_ms=20_000)),
}
NAME = st.sampled_from(sorted(PARTS))
# Few blocks, so that events meet: two segments deep, with branches.
WORD = st.sampled_from(["a", "aa", "aab", "aaa", "aaaa", "aaaaa"])
PROMPT = st.sampled_from(["aa", "aab", "aaaaa"])


@dataclass(frozen=True, eq=False)
class OpenWrite:
    """A write grant: what for, and the model of the namespace as it was then."""

    model: Model
    word: str
    item: WriteItem
    writer: str
    condition: Condition
    extent: Extent


@dataclass(frozen=True, eq=False)
class OpenReplica:
    """A replica grant."""

    model: Model
    word: str
    block: ReplicaBlock
    extents: tuple[Extent, ...]


@dataclass(frozen=True, eq=False)
class OpenRead:
    """A read grant, or a snapshot's."""

    model: Model
    word: str
    group: int
    extents: tuple[Extent, ...]


class Machine(RuleBasedStateMachine):
    """Time, namespaces, and what must hold after every event."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(
            EngineSettings(
                capacity_bytes=12 * PAGE,
                staged_bytes_max=7 * PAGE,
                pinned_bytes_max=5 * PAGE,
                history_blocks_max=512,
            )
        )
        self.now_ms = 1_000_000
        self.arena = TaggedArena()
        self.effects: tuple[Effect, ...] = ()
        self.models: dict[str, Model] = {}
        self.revisions = dict.fromkeys(PARTS, 0)
        self.writes: dict[int, OpenWrite] = {}
        self.replicas: dict[int, OpenReplica] = {}
        self.reads: dict[int, OpenRead] = {}
        self.asked = 0
        for name in PARTS:
            self.define(name, 0)

    # ------------------------------------------------------------ the driver

    def handle(self, event: Event[ReplyT]) -> ReplyT:
        """Let the engine handle an event; its effects stay in `effects`."""
        reply, self.effects = self.engine.handle(event, self.now_ms)
        self._learn_evictions(event)
        return reply

    def named(self, name: str) -> tuple[NamespaceId, bytes]:
        """Return what names a namespace in an event."""
        return NamespaceId("t", name), fingerprint(PARTS[name]).digest()

    def namespace(self, name: str) -> Namespace:
        """Return the engine's state of a namespace."""
        return self.engine._state.namespaces.get(NamespaceId("t", name))

    def is_live(self, model: Model) -> bool:
        """Whether the namespace that a grant was given in still exists."""
        return any(one is model for one in self.models.values())

    def _learn_evictions(self, event: Event[ReplyT]) -> None:
        """Take from the model what the engine evicted, and check that it could go."""
        for name, model in self.models.items():
            namespace = self.namespace(name)
            for word in sorted(model.blocks, key=len, reverse=True):
                reason = self.engine._state.history.reason(namespace, key_of(word))
                if key_of(word) in namespace.entries or reason is not Miss.EVICTED:
                    continue
                assert isinstance(event, BeginWrite | BeginReplica), event
                assert not model.kept(word, self.now_ms)
                assert not model.blocks[word].held_with & set(self.reads)
                assert model.children(word) == []
                del model.blocks[word]
                model.reasons[word] = Miss.EVICTED

    # ------------------------------------------------------------ namespaces and time

    @rule(name=NAME, which=st.integers(0, 2))
    def define(self, name: str, which: int) -> None:
        """Make a namespace, or give it another policy."""
        policies = POLICIES[name]
        policy = policies[which % len(policies)]
        self.revisions[name] += 1
        news = record(name, PARTS[name], policy=policy, revision=self.revisions[name])
        assert self.handle(ApplyNamespace(news)) is True
        assert self.handle(ApplyNamespace(news)) is False
        self.models.setdefault(name, Model(policy)).policy = policy

    @precondition(lambda self: len(self.models) == len(PARTS))
    @rule(name=NAME, really=st.integers(0, 7))
    def undefine(self, name: str, really: int = 0) -> None:
        """Delete a namespace; not each time, so that there is something to delete."""
        if really:
            return
        self.revisions[name] += 1
        gone = record(name, PARTS[name], revision=self.revisions[name], deleted=True)
        del self.models[name]
        assert self.handle(ApplyNamespace(gone)) is True
        with pytest.raises(NamespaceNotFoundError):
            self.handle(BeginRead(*self.named(name), ()))

    @rule(wait_ms=st.sampled_from([0, 1, 4_000, 12_000]))
    def tick(self, wait_ms: int) -> None:
        """Let time pass."""
        self.now_ms += wait_ms
        self.handle(Tick())
        for model in self.models.values():
            for word in sorted(model.blocks, key=len):
                model.find(word, self.now_ms)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def agrees_with_itself(self) -> None:
        check_invariants(self.engine)

    @invariant()
    def agrees_with_the_model(self) -> None:
        for name, model in self.models.items():
            entries = self.namespace(name).entries
            live = {word for word in model.blocks if not model.expired(word, self.now_ms)}
            assert {key_of(word) for word in live} <= set(entries)
            assert set(entries) <= {key_of(word) for word in model.blocks}
            for word in live:
                payload = entries[key_of(word)].payload
                assert payload.group == model.blocks[word].group
                for part, extent in enumerate(payload.extents):
                    assert extent.frame_crc32c == model.blocks[word].parts[part]
                    assert self.arena.holds(extent, word)

    @invariant()
    def hits_and_misses_are_what_was_asked(self) -> None:
        status = self.engine.status()
        assert status.lookup_hits + status.lookup_misses == self.asked

    @invariant()
    def open_grants_keep_their_bytes(self) -> None:
        for one in self.reads.values():
            assert all(self.arena.holds(extent, one.word) for extent in one.extents)
