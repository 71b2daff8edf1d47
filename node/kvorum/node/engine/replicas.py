"""Blocks and deletes that peers carry here, and how two replicas come to hold the same group."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.core.errors import InternalError, KvorumError, NamespaceNotFoundError
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.events import (
    AbortReplica,
    BeginReplica,
    CommitReplica,
    Extent,
    Outcome,
    ReplicaBlock,
    ReplicaGrant,
)
from kvorum.node.engine.payloads import Payload, rank
from kvorum.node.engine.state import State
from kvorum.node.engine.validation import check_replica


@dataclass(frozen=True, slots=True)
class _Ticket:
    namespace: Namespace
    block: ReplicaBlock
    extents: tuple[Extent, ...]
    held: tuple[Entry, ...]


class Replicas:
    """Handles `BeginReplica`, `CommitReplica` and `AbortReplica`."""

    def __init__(self, state: State) -> None:
        self._namespaces = state.namespaces
        self._store = state.store
        self._retention = state.retention
        self._room = state.room
        self._staging = state.staging
        self._tombstones = state.tombstones
        self._clock = state.clock
        self._counters = state.counters
        self._grant_ids = state.grant_ids
        self._tickets: dict[int, _Ticket] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def begin(self, event: BeginReplica) -> ReplicaGrant | Outcome | KvorumError:
        """Grant memory for a peer's block if it is to be stored here."""
        block = event.block
        try:
            namespace = self._namespaces.for_writing(block.namespace, block.fingerprint_digest)
            check_replica(namespace, block)
            self._clock.observe(block.clock)
            if self._is_settled(namespace, block):
                self._counters.replica_kept += 1
                return Outcome.ALREADY_STORED
            return self._grant(namespace, block)
        except KvorumError as error:
            self._counters.replica_refused += 1
            return error

    def commit(self, event: CommitReplica) -> Outcome | KvorumError:
        """Make a peer's block visible, unless something better came meanwhile."""
        ticket = self._tickets.pop(event.grant_id, None)
        if ticket is None:
            return InternalError(f"no replica grant {event.grant_id} is open")
        namespace, block = ticket.namespace, ticket.block
        try:
            if namespace.gone:
                raise NamespaceNotFoundError("the namespace was deleted", field="namespace.name")
            if self._is_settled(namespace, block):
                self._counters.replica_kept += 1
                self._give_back(ticket)
                return Outcome.ALREADY_STORED
            self._place(ticket)
        except KvorumError as error:
            self._counters.replica_refused += 1
            self._give_back(ticket)
            return error
        return Outcome.STORED

    def abort(self, event: AbortReplica) -> None:
        """Give a peer's block's memory back.

        Raises:
            InternalError: no such grant is open.
        """
        ticket = self._tickets.pop(event.grant_id, None)
        if ticket is None:
            raise InternalError(f"no replica grant {event.grant_id} is open")
        self._counters.aborted_writes += 1
        self._counters.corrupt_writes += event.is_corrupt
        self._give_back(ticket)

    def _is_settled(self, namespace: Namespace, block: ReplicaBlock) -> bool:
        """Whether there is nothing to store: ours stays, or the block was deleted or is too old.

        If both are the same group, the times of the better of the two stores stand from now on.
        """
        if self._is_deleted(namespace, block) or self._is_too_old(namespace, block):
            return True
        entry = self._store.find(namespace, block.key)
        if entry is None:
            return False
        ours = entry.payload
        better = rank(block.group, block.clock, overwrite=block.overwrite) > ours.rank()
        if ours.group != block.group:
            return not better
        if better:
            ours.clock, ours.overwrite = block.clock, block.overwrite
        return True

    def _is_deleted(self, namespace: Namespace, block: ReplicaBlock) -> bool:
        """Whether a delete of the block, or of the one before it, is later than its store.

        A delete reaches all that continues the block, also what was not here to be deleted.
        """
        if self._tombstones.latest(namespace, block.key) >= block.clock:
            return True
        if namespace.first_in_segment(block.index):
            return False
        before = self._tombstones.latest(namespace, block.parent)
        if before < block.clock:
            return False
        self._tombstones.record(namespace, block.key, before)
        return True

    def _is_too_old(self, namespace: Namespace, block: ReplicaBlock) -> bool:
        ttl_ms = namespace.record.policy.ttl_ms
        return ttl_ms > 0 and block.stored_ms + ttl_ms <= self._clock.now_ms

    def _grant(self, namespace: Namespace, block: ReplicaBlock) -> ReplicaGrant:
        names = (
            (block.key,) if namespace.first_in_segment(block.index) else (block.key, block.parent)
        )
        held = tuple(one for name in names if (one := namespace.entries.get(name)) is not None)
        for entry in held:
            self._retention.hold(entry)
        extents: list[Extent] = []
        try:
            for sizes, checksums in zip(block.frame_sizes, block.frame_crc32c, strict=True):
                extents.append(self._room.stage(namespace, sizes, checksums))
        except KvorumError:
            self._give_back(_Ticket(namespace, block, tuple(extents), held))
            raise
        grant_id = next(self._grant_ids)
        self._tickets[grant_id] = _Ticket(namespace, block, tuple(extents), held)
        return ReplicaGrant(grant_id, tuple(extents))

    def _place(self, ticket: _Ticket) -> None:
        namespace, block = ticket.namespace, ticket.block
        payload = Payload(
            block.group,
            block.clock,
            overwrite=block.overwrite,
            stored_ms=min(block.stored_ms, self._clock.now_ms),
            extents=ticket.extents,
        )
        entry = self._store.find(namespace, block.key)
        if entry is not None:
            growth = payload.arena_bytes - entry.payload.arena_bytes
            self._retention.check_growth(entry, growth)
        self._room.unstage(namespace, ticket.extents)
        if entry is None:
            self._counters.replica_blocks += 1
            self._store.add(
                Entry(namespace, block.key, block.parent, block.index, block.slot, payload)
            )
        else:
            self._counters.overwritten_blocks += 1
            self._store.replace(entry, payload)
        self._release(ticket)
        self._staging.end_losers(namespace, block.key)

    def _give_back(self, ticket: _Ticket) -> None:
        self._room.give_back(ticket.namespace, ticket.extents)
        self._release(ticket)

    def _release(self, ticket: _Ticket) -> None:
        for entry in ticket.held:
            self._retention.release(entry)
