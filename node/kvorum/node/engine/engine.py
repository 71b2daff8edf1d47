"""The engine of a cache node: one event in, one reply and a list of effects out.

Every decision about blocks is taken here and in the modules that this one puts together; nothing
here does I/O, reads a clock or draws a random number, so one list of events has one outcome.

    writes, replicas ─▶ staging ─▶ room ─▶ allocator      where parts lie, what must go for them
            │                        └───▶ eviction       which block goes first
            └────────▶ store ◀─────────── reads, keeping  what is visible
                         └───▶ retention                  what may go at present
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from kvorum.core.errors import InternalError
from kvorum.node.engine import events
from kvorum.node.engine.counters import EngineStatus, NamespaceUsage
from kvorum.node.engine.entries import Namespace
from kvorum.node.engine.events import Effect, Event, NamespaceId, NamespaceRecord, Snapshot
from kvorum.node.engine.keeping import Keeping
from kvorum.node.engine.reads import Reads
from kvorum.node.engine.replicas import Replicas
from kvorum.node.engine.settings import EngineSettings
from kvorum.node.engine.state import State
from kvorum.node.engine.writes import Writes

ReplyT = TypeVar("ReplyT")


class Engine:
    """All blocks of one node, and every decision about them."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self._state = state = State(settings)
        self._reads = Reads(state)
        self._writes = Writes(state)
        self._replicas = Replicas(state)
        self._handlers = self._connect(Keeping(state))

    def handle(self, event: Event[ReplyT], now_ms: int) -> tuple[ReplyT, tuple[Effect, ...]]:
        """Take one event in; return its reply and what the driver must carry out.

        `now_ms` is milliseconds since the Unix epoch; time that runs backwards stands still.

        Raises:
            KvorumError: the whole event is refused, and nothing changed. Events whose reply can
                carry an error are answered with it instead.
        """
        self._state.clock.advance(now_ms)
        handler = self._handlers.get(type(event))
        if handler is None:
            raise InternalError(f"the engine has no event {type(event).__name__}")
        self._state.effects.clear()
        # Each handler takes one class of event; `_connect` pairs them.
        reply = cast("ReplyT", handler(event))
        return reply, tuple(self._state.effects)

    def snapshot(self, namespace: NamespaceId, key: bytes, now_ms: int) -> Snapshot | None:
        """Open a read of a whole block, for a peer; it counts as no use of the block.

        Its bytes stay until `EndRead` of the snapshot's grant. None if the block is not here.

        Raises:
            OverloadedError: too many reads are open.
        """
        self._state.clock.advance(now_ms)
        return self._reads.snapshot(namespace, key)

    def namespace(self, name: NamespaceId) -> NamespaceRecord | None:
        """Return the latest record of a namespace, its tombstone if it was deleted."""
        return self._state.namespaces.record(name)

    def namespaces(self) -> tuple[NamespaceRecord, ...]:
        """Return all records, tombstones included: what members exchange."""
        return self._state.namespaces.records()

    def status(self) -> EngineStatus:
        """Return the state and the counts of this moment."""
        state, counters, store = self._state, self._state.counters, self._state.store
        namespaces = state.namespaces.live()
        return EngineStatus(
            arena_bytes=self.settings.capacity_bytes,
            used_bytes=state.allocator.used_bytes,
            largest_free_bytes=state.allocator.largest_free_bytes,
            pinned_bytes=state.retention.pinned_bytes,
            staged_bytes=state.room.staged_bytes,
            draining_bytes=store.draining_bytes,
            index_bytes=store.index_bytes + state.room.index_bytes,
            blocks=sum(len(one.entries) for one in namespaces),
            candidates=state.retention.candidates,
            open_reads=len(self._reads),
            open_writes=len(self._writes) + len(self._replicas),
            history_blocks=len(state.history),
            tombstones=len(state.tombstones),
            tombstones_overflowed=state.tombstones.overflowed,
            lookup_hits=counters.lookup_hits,
            lookup_misses=counters.lookup_misses,
            misses=dict(counters.misses),
            counters=counters.by_name(),
            namespaces=tuple(_usage(one) for one in namespaces),
        )

    def _connect(self, keeping: Keeping) -> dict[type[Event[Any]], Callable[[Any], object]]:
        return {
            events.ApplyNamespace: self._apply_namespace,
            events.Lookup: self._reads.lookup,
            events.BeginRead: self._reads.begin,
            events.EndRead: self._reads.end,
            events.Corrupt: self._reads.corrupt,
            events.Touch: self._reads.touch,
            events.BeginWrite: self._writes.begin,
            events.CommitWrite: self._writes.commit,
            events.AbortWrite: self._writes.abort,
            events.BeginReplica: self._replicas.begin,
            events.CommitReplica: self._replicas.commit,
            events.AbortReplica: self._replicas.abort,
            events.Pin: keeping.pin,
            events.Delete: keeping.delete,
            events.ApplyTombstone: keeping.apply_tombstone,
            events.Stat: keeping.stat,
            events.Tick: self._tick,
        }

    def _apply_namespace(self, event: events.ApplyNamespace) -> bool:
        state = self._state
        news, ended = state.namespaces.apply(event.record)
        if ended is not None:
            state.staging.end_namespace(ended)
            state.store.bury(ended)
        elif news and (namespace := state.namespaces.find(event.record.id)) is not None:
            state.store.recheck(namespace)
        return news

    def _tick(self, _: events.Tick) -> None:
        state = self._state
        sweeps = (
            state.staging.expire,
            state.store.expire,
            state.retention.end_leases,
            state.tombstones.expire,
            state.store.reclaim,
        )
        for sweep in sweeps:
            sweep(self.settings.tick_items_max)


def _usage(namespace: Namespace) -> NamespaceUsage:
    return NamespaceUsage(
        namespace.record.id,
        len(namespace.entries),
        namespace.used_bytes,
        namespace.staged_bytes,
        namespace.lookup_hits,
        namespace.lookup_misses,
    )
