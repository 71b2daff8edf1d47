"""Lookups, reads and the leases that join them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InternalError, InvalidArgumentError, OverloadedError
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.events import (
    BeginRead,
    BlockView,
    Corrupt,
    EndRead,
    Lookup,
    LookupReply,
    Miss,
    NamespaceId,
    ReadGrant,
    ReadItem,
    ReplicaBlock,
    Snapshot,
    Touch,
)
from kvorum.node.engine.payloads import Payload
from kvorum.node.engine.state import State
from kvorum.node.engine.validation import check_keys

_ABSENT: Final = {reason: BlockView(reason) for reason in Miss}
_NOT_OWNED: Final = _ABSENT[Miss.STALE_EPOCH]


@dataclass(slots=True)
class _Ticket:
    entry: Entry
    payload: Payload
    is_hit: bool  # what it counts as when it ends; a peer's snapshot counts as nothing


class Reads:
    """Handles `Lookup`, `BeginRead`, `EndRead`, `Corrupt` and `Touch`, and takes snapshots."""

    def __init__(self, state: State) -> None:
        self._namespaces = state.namespaces
        self._store = state.store
        self._retention = state.retention
        self._history = state.history
        self._clock = state.clock
        self._counters = state.counters
        self._grant_ids = state.grant_ids
        self._open_max = state.settings.open_reads_max
        self._tickets: dict[int, _Ticket] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def lookup(self, event: Lookup) -> LookupReply:
        """Walk a prompt's blocks, segment by segment.

        Raises:
            NamespaceNotFoundError: there is no such namespace.
            InvalidArgumentError: a key is not 64 bytes, or there are too many, or flags are
                missing.
        """
        namespace = self._namespaces.get(event.namespace)
        check_keys(event.keys, limits.LOOKUP_BLOCKS_MAX)
        if len(event.owned) != len(event.keys):
            raise InvalidArgumentError(
                f"{len(event.owned)} flags for {len(event.keys)} keys", field="owned"
            )
        if namespace.digest != event.fingerprint_digest:
            found: list[Entry] = []
            views = self._other_fingerprint(event)
        else:
            found, views = self._walk(namespace, event)
        self._count(namespace, found, views, event.owned)
        for entry in reversed(found):
            self._retention.touch(entry)
        present = 0
        while present < len(views) and views[present].miss is None:
            present += 1
        return LookupReply(present, tuple(views), self._lease(found, event.lease_ms))

    def touch(self, event: Touch) -> tuple[tuple[Miss | None, ...], int | None]:
        """Count a use of blocks and lease them; raises as `lookup` does."""
        namespace = self._namespaces.get(event.namespace)
        check_keys(event.keys, limits.BATCH_ITEMS_MAX)
        misses: list[Miss | None] = []
        found = []
        for key in event.keys:
            entry = self._find(namespace, event.fingerprint_digest, key)
            if isinstance(entry, Miss):
                misses.append(entry)
            else:
                misses.append(None)
                found.append(entry)
        for entry in reversed(found):
            self._retention.touch(entry)
        return tuple(misses), self._lease(found, event.lease_ms)

    def begin(self, event: BeginRead) -> tuple[ReadGrant | Miss, ...]:
        """Grant reads of parts.

        Raises:
            OverloadedError: too many reads are open.
        """
        namespace = self._namespaces.get(event.namespace)
        self._check_open(len(event.items))
        answers: list[ReadGrant | Miss] = []
        found = []
        for item in event.items:
            entry = self._find_part(namespace, event.fingerprint_digest, item)
            if isinstance(entry, Miss):
                answers.append(entry)
                self._counters.misses[entry] += 1
                continue
            found.append(entry)
            payload = entry.payload
            grant_id = self._open(entry, is_hit=True)
            answers.append(ReadGrant(grant_id, payload.extents[item.part], payload.group))
        self._counters.read_misses += len(event.items) - len(found)
        for entry in reversed(found):
            self._retention.touch(entry)
        return tuple(answers)

    def end(self, event: EndRead) -> None:
        """End a read or a snapshot.

        Raises:
            InternalError: no such grant is open.
        """
        ticket = self._tickets.pop(event.grant_id, None)
        if ticket is None:
            raise InternalError(f"no read grant {event.grant_id} is open")
        self._counters.read_hits += ticket.is_hit
        self._store.end_read(ticket.payload)
        self._retention.release(ticket.entry)

    def corrupt(self, event: Corrupt) -> None:
        """Drop the block whose bytes are wrong; raises as `end` does.

        The grant stays open until its `EndRead`, and its read counts as a miss. A block that has
        another payload by now stays.
        """
        ticket = self._tickets.get(event.grant_id)
        if ticket is None:
            raise InternalError(f"no read grant {event.grant_id} is open")
        if ticket.is_hit:
            ticket.is_hit = False
            self._counters.read_misses += 1
            self._counters.misses[Miss.CHECKSUM] += 1
        if ticket.entry.live and ticket.entry.payload is ticket.payload:
            self._store.drop(ticket.entry, Miss.CHECKSUM)

    def snapshot(self, name: NamespaceId, key: bytes) -> Snapshot | None:
        """Open a read of a whole block for a peer; counts as no use. None if it is absent."""
        namespace = self._namespaces.find(name)
        entry = None if namespace is None else self._store.find(namespace, key)
        if namespace is None or entry is None:
            return None
        self._check_open(1)
        payload = entry.payload
        block = ReplicaBlock(
            namespace=name,
            fingerprint_digest=namespace.digest,
            key=entry.key,
            parent=entry.parent,
            index=entry.index,
            slot=entry.slot,
            group=payload.group,
            clock=payload.clock,
            stored_ms=payload.stored_ms,
            overwrite=payload.overwrite,
            frame_sizes=tuple(extent.frame_sizes for extent in payload.extents),
            frame_crc32c=tuple(extent.frame_crc32c for extent in payload.extents),
        )
        return Snapshot(self._open(entry, is_hit=False), block, payload.extents)

    def _walk(self, namespace: Namespace, event: Lookup) -> tuple[list[Entry], list[BlockView]]:
        found: list[Entry] = []
        views: list[BlockView] = []
        broken: BlockView | None = None
        for index, key in enumerate(event.keys):
            if namespace.first_in_segment(index):
                broken = None
            if not event.owned[index]:
                views.append(_NOT_OWNED)
                continue
            entry = namespace.entries.get(key)
            if entry is not None and namespace.mortal:
                entry = self._store.find(namespace, key)
            if entry is None:
                view = _ABSENT[self._history.reason(namespace, key)]
                broken = broken or view
            elif broken is not None:
                view = broken
            else:
                view = entry.payload.view
                found.append(entry)
            views.append(view)
        return found, views

    @staticmethod
    def _other_fingerprint(event: Lookup) -> list[BlockView]:
        other = _ABSENT[Miss.FINGERPRINT]
        return [other if owned else _NOT_OWNED for owned in event.owned]

    def _count(
        self,
        namespace: Namespace,
        found: list[Entry],
        views: list[BlockView],
        owned: tuple[bool, ...],
    ) -> None:
        hits, misses = len(found), sum(owned) - len(found)
        self._counters.lookup_hits += hits
        namespace.lookup_hits += hits
        if not misses:
            return
        self._counters.lookup_misses += misses
        namespace.lookup_misses += misses
        for view, mine in zip(views, owned, strict=True):
            if mine and view.miss is not None:
                self._counters.misses[view.miss] += 1

    def _find(self, namespace: Namespace, fingerprint_digest: bytes, key: bytes) -> Entry | Miss:
        if namespace.digest != fingerprint_digest:
            return Miss.FINGERPRINT
        entry = self._store.find(namespace, key)
        return self._history.reason(namespace, key) if entry is None else entry

    def _find_part(
        self, namespace: Namespace, fingerprint_digest: bytes, item: ReadItem
    ) -> Entry | Miss:
        entry = self._find(namespace, fingerprint_digest, item.key)
        if isinstance(entry, Miss):
            return entry
        if not 0 <= item.part < namespace.parts:
            return Miss.FINGERPRINT
        if item.group not in (0, entry.payload.group):
            return Miss.INVALIDATED  # the group that the reader means was replaced
        return entry

    def _lease(self, entries: list[Entry], lease_ms: int) -> int | None:
        """Lease blocks; return until when all of them are promised."""
        if not lease_ms or not entries:
            return None
        until_ms = self._clock.now_ms + lease_ms
        self._retention.lease(entries, until_ms)
        # A promise does not outlast the namespace's policy: expired blocks go, leased or not.
        if entries[0].namespace.mortal:
            ends = (entry.expires_ms() for entry in entries)
            until_ms = min([until_ms, *(end for end in ends if end is not None)])
        return until_ms

    def _check_open(self, more: int) -> None:
        if len(self._tickets) + more > self._open_max:
            self._counters.refused_overloaded += 1
            raise OverloadedError(
                f"{len(self._tickets)} reads are open",
                field="engine.open_reads_max",
                limit=f"{self._open_max} reads",
            )

    def _open(self, entry: Entry, *, is_hit: bool) -> int:
        grant_id = next(self._grant_ids)
        self._tickets[grant_id] = _Ticket(entry, entry.payload, is_hit)
        self._store.begin_read(entry.payload)
        self._retention.hold(entry)
        return grant_id
