"""Stores by writers: begin, commit and abort of parts, and the moment a block becomes visible."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.core.errors import (
    InternalError,
    InvalidArgumentError,
    KvorumError,
    NamespaceNotFoundError,
)
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.events import (
    AbortWrite,
    BeginWrite,
    CommitWrite,
    Condition,
    Extent,
    Outcome,
    Replicate,
    WriteGrant,
    WriteItem,
    WriteReply,
)
from kvorum.node.engine.payloads import Payload, group_of
from kvorum.node.engine.staging import StagedGroup
from kvorum.node.engine.state import State
from kvorum.node.engine.validation import check_item


@dataclass(frozen=True, slots=True)
class _Ticket:
    group: StagedGroup
    part: int
    extent: Extent


class Writes:
    """Handles `BeginWrite`, `CommitWrite` and `AbortWrite`."""

    def __init__(self, state: State) -> None:
        self._namespaces = state.namespaces
        self._store = state.store
        self._retention = state.retention
        self._room = state.room
        self._staging = state.staging
        self._clock = state.clock
        self._counters = state.counters
        self._grant_ids = state.grant_ids
        self._effects = state.effects
        self._tickets: dict[int, _Ticket] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def begin(self, event: BeginWrite) -> tuple[WriteGrant | WriteReply | KvorumError, ...]:
        """Answer each item with a grant, with what is stored already, or with a refusal."""
        try:
            namespace = self._namespaces.for_writing(event.namespace, event.fingerprint_digest)
        except KvorumError as error:
            return (error,) * len(event.items)
        answers: list[WriteGrant | WriteReply | KvorumError] = []
        for item in event.items:
            try:
                answers.append(self._begin_part(namespace, event, item))
            except KvorumError as error:
                answers.append(error)
        return tuple(answers)

    def commit(self, event: CommitWrite) -> WriteReply | KvorumError:
        """Keep a part, and make the block visible if it was the last of its group."""
        ticket = self._tickets.pop(event.grant_id, None)
        if ticket is None:
            return InternalError(f"no write grant {event.grant_id} is open")
        group = ticket.group
        self._staging.close_part(group)
        try:
            return self._commit_part(group, ticket)
        except KvorumError as error:
            self._staging.end(group)
            return error

    def abort(self, event: AbortWrite) -> None:
        """Give a part's memory back.

        Raises:
            InternalError: no such grant is open.
        """
        ticket = self._tickets.pop(event.grant_id, None)
        if ticket is None:
            raise InternalError(f"no write grant {event.grant_id} is open")
        self._counters.aborted_writes += 1
        self._counters.corrupt_writes += event.is_corrupt
        self._room.give_back(ticket.group.namespace, (ticket.extent,))
        self._staging.close_part(ticket.group)
        self._staging.end_if_idle(ticket.group)

    def _begin_part(
        self, namespace: Namespace, event: BeginWrite, item: WriteItem
    ) -> WriteGrant | WriteReply:
        check_item(namespace, item)
        entry = self._store.find(namespace, item.key)
        stored = self._stored_already(namespace, entry, event.condition, item.if_group)
        if stored is not None:
            return stored
        group = self._group(namespace, event, item, entry)
        waiting = group.parts.get(item.part)
        if waiting is not None and waiting.is_same(item.frame_sizes, item.frame_crc32c):
            self._counters.staged_parts += 1
            return WriteReply(Outcome.STAGED, 0, namespace.record.policy.replicas)
        try:
            extent = self._room.stage(namespace, item.frame_sizes, item.frame_crc32c)
        except KvorumError:
            self._staging.end_if_idle(group)
            raise
        self._staging.open_part(group)
        grant_id = next(self._grant_ids)
        self._tickets[grant_id] = _Ticket(group, item.part, extent)
        return WriteGrant(grant_id, extent)

    def _group(
        self, namespace: Namespace, event: BeginWrite, item: WriteItem, entry: Entry | None
    ) -> StagedGroup:
        name = (event.writer, event.condition, item.if_group)
        group = self._staging.find(namespace, item.key, name)
        for known in (entry, None if group is None else group.item):
            if known is not None and _place(known) != _place(item):
                raise InvalidArgumentError(
                    "another part of the block names another place in the chain",
                    field="items.index",
                    limit=f"index {known.index} after the same parent",
                )
        if group is None:
            above = None
            if not namespace.first_in_segment(item.index):
                above = namespace.entries.get(item.parent)
            held = tuple(one for one in (entry, above) if one is not None)
            group = StagedGroup(namespace, item, event.writer, event.condition, held=held)
            self._staging.add(group)
        return group

    def _commit_part(self, group: StagedGroup, ticket: _Ticket) -> WriteReply:
        namespace = group.namespace
        if namespace.gone:
            self._room.give_back(namespace, (ticket.extent,))
            raise NamespaceNotFoundError("the namespace was deleted", field="namespace.name")
        if self._staging.keep(group, ticket.part, ticket.extent):
            self._counters.staged_restarts += 1
        entry = self._store.find(namespace, group.item.key)
        stored = self._stored_already(namespace, entry, group.condition, group.item.if_group)
        if stored is not None:
            self._staging.end(group)
            return stored
        if not group.complete:
            self._counters.staged_parts += 1
            return WriteReply(Outcome.STAGED, 0, namespace.record.policy.replicas)
        return self._complete(group, entry)

    def _stored_already(
        self, namespace: Namespace, entry: Entry | None, condition: Condition, if_group: int
    ) -> WriteReply | None:
        """Return the answer to a store that its condition makes needless.

        Raises:
            InvalidArgumentError: the condition forbids the store.
        """
        if condition is Condition.IF_ABSENT and entry is not None:
            return self._already(namespace, entry)
        if condition is Condition.IF_GROUP:
            group = 0 if entry is None else entry.payload.group
            if group != if_group or entry is None:
                raise InvalidArgumentError(
                    f"the group {group} is stored", field="items.if_group", limit=f"{if_group}"
                )
        return None

    def _already(self, namespace: Namespace, entry: Entry) -> WriteReply:
        self._counters.already_stored += 1
        self._retention.touch(entry)
        return WriteReply(
            Outcome.ALREADY_STORED, entry.payload.group, namespace.record.policy.replicas
        )

    def _complete(self, group: StagedGroup, entry: Entry | None) -> WriteReply:
        namespace, item = group.namespace, group.item
        extents = group.extents()
        number = group_of(item.key, group.writer, extents)
        if entry is not None and entry.payload.group == number:
            self._staging.end(group)
            return self._already(namespace, entry)
        payload = Payload(
            number,
            self._clock.tick(),
            overwrite=group.condition is not Condition.IF_ABSENT,
            stored_ms=self._clock.now_ms,
            extents=extents,
        )
        if entry is not None:
            growth = payload.arena_bytes - entry.payload.arena_bytes
            self._retention.check_growth(entry, growth)
        self._staging.hand_over(group)
        if entry is None:
            self._counters.stored_blocks += 1
            self._store.add(Entry(namespace, item.key, item.parent, item.index, item.slot, payload))
        else:
            self._counters.overwritten_blocks += 1
            self._store.replace(entry, payload)
        self._staging.end(group)
        self._staging.end_losers(namespace, item.key)
        self._replicate(namespace, item, payload)
        return WriteReply(Outcome.STORED, number, namespace.record.policy.replicas)

    def _replicate(self, namespace: Namespace, item: WriteItem, payload: Payload) -> None:
        """Ask for the block to be carried, to whoever is to hold it besides this node.

        That may be somebody even with one replica: this node may stand in for another.
        """
        self._effects.append(
            Replicate(
                namespace.record.id,
                item.key,
                item.slot,
                namespace.record.policy.replicas,
                payload.clock,
                payload.size_bytes,
                payload.overwrite,
            )
        )


def _place(block: Entry | WriteItem) -> tuple[int, bytes]:
    return block.index, block.parent
