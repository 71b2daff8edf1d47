"""Pins, deletes, tombstones and descriptions of blocks."""

from __future__ import annotations

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, KvorumError
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.events import (
    ApplyTombstone,
    BlockInfo,
    Delete,
    Miss,
    Pin,
    ReplicateTombstone,
    Stat,
)
from kvorum.node.engine.state import State
from kvorum.node.engine.validation import check_keys, check_range


class Keeping:
    """Handles `Pin`, `Delete`, `ApplyTombstone` and `Stat`."""

    def __init__(self, state: State) -> None:
        self._namespaces = state.namespaces
        self._store = state.store
        self._retention = state.retention
        self._history = state.history
        self._tombstones = state.tombstones
        self._clock = state.clock
        self._effects = state.effects

    def pin(self, event: Pin) -> tuple[Miss | None, ...] | KvorumError:
        """Pin or unpin blocks; each keeps all that it continues within its segment.

        A block that is cut off from its segment's beginning is answered as that gap: no lookup
        finds it, so keeping it would help nobody.
        """
        try:
            namespace = self._namespaces.for_writing(event.namespace, event.fingerprint_digest)
            check_keys(event.keys, limits.BATCH_ITEMS_MAX)
            found = [self._reachable(namespace, key) for key in event.keys]
            entries = [one for one in found if isinstance(one, Entry)]
            if event.pinned:
                self._retention.pin(entries)
        except KvorumError as error:
            return error
        if not event.pinned:
            for entry in entries:
                self._retention.unpin(entry)
        return tuple(None if isinstance(one, Entry) else one for one in found)

    def delete(self, event: Delete) -> tuple[int, ...]:
        """Delete blocks and all that continue them in their segment.

        Raises:
            NamespaceNotFoundError: there is no such namespace.
            FingerprintError: its fingerprint is another one.
            InvalidArgumentError: a key or a slot is not one.
        """
        namespace = self._namespaces.for_writing(event.namespace, event.fingerprint_digest)
        check_keys(event.keys, limits.BATCH_ITEMS_MAX)
        if len(event.slots) != len(event.keys):
            raise InvalidArgumentError(
                f"{len(event.slots)} slots for {len(event.keys)} keys", field="blocks.slot"
            )
        for slot in event.slots:
            check_range("blocks.slot", slot, limits.SLOTS)
        return tuple(
            self._delete(namespace, key, slot)
            for key, slot in zip(event.keys, event.slots, strict=True)
        )

    def apply_tombstone(self, event: ApplyTombstone) -> None:
        """Delete what a peer deleted, unless it was stored again later.

        Raises:
            NamespaceNotFoundError: there is no such namespace.
            InvalidArgumentError: the key is not one, or the clock is far ahead.
        """
        namespace = self._namespaces.get(event.namespace)
        check_keys((event.key,), 1)
        self._clock.observe(event.clock)
        self._tombstones.record(namespace, event.key, event.clock)
        entry = namespace.entries.get(event.key)
        doomed = self._store.waiting_for(namespace, event.key) if entry is None else (entry,)
        for one in doomed:
            # What was stored later than the delete but continues an earlier block goes with it:
            # no lookup would find it, and its origin still has it.
            if one.payload.clock <= event.clock:
                self._store.drop(one, Miss.INVALIDATED)

    def stat(self, event: Stat) -> tuple[BlockInfo, ...]:
        """Describe blocks.

        Raises:
            NamespaceNotFoundError: there is no such namespace.
            InvalidArgumentError: a key is not 64 bytes, or there are too many.
        """
        namespace = self._namespaces.get(event.namespace)
        check_keys(event.keys, limits.BATCH_ITEMS_MAX)
        if namespace.digest != event.fingerprint_digest:
            return (BlockInfo(Miss.FINGERPRINT),) * len(event.keys)
        return tuple(self._describe(namespace, key) for key in event.keys)

    def _reachable(self, namespace: Namespace, key: bytes) -> Entry | Miss:
        entry = self._store.find(namespace, key)
        if entry is None:
            return self._history.reason(namespace, key)
        top = entry.top
        return entry if top.depth == 0 else self._history.reason(namespace, top.parent)

    def _delete(self, namespace: Namespace, key: bytes, slot: int) -> int:
        hybrid = self._clock.tick()
        entry = self._store.find(namespace, key)
        doomed = self._store.waiting_for(namespace, key) if entry is None else (entry,)
        gone: list[Entry] = []
        for one in doomed:
            gone += self._store.drop(one, Miss.INVALIDATED)
        # The block itself may be absent here and present at a peer.
        self._bury(namespace, key, slot, hybrid)
        for one in gone:
            if one.key != key:
                self._bury(namespace, one.key, one.slot, hybrid)
        return len(gone)

    def _bury(self, namespace: Namespace, key: bytes, slot: int, hybrid: int) -> None:
        self._tombstones.record(namespace, key, hybrid)
        record = namespace.record
        self._effects.append(
            ReplicateTombstone(record.id, key, slot, record.policy.replicas, hybrid)
        )

    def _describe(self, namespace: Namespace, key: bytes) -> BlockInfo:
        entry = self._store.find(namespace, key)
        if entry is None:
            return BlockInfo(self._history.reason(namespace, key))
        payload, now_ms = entry.payload, self._clock.now_ms
        return BlockInfo(
            None,
            size_bytes=payload.size_bytes,
            parts=len(payload.extents),
            group=payload.group,
            age_ms=now_ms - payload.stored_ms,
            idle_ms=now_ms - entry.used_ms,
            lease_ms=max(0, entry.leased_until_ms - now_ms),
            pinned=entry.pins > 0,
            digest=payload.digest(),
        )
