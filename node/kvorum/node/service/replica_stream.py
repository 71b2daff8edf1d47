"""ReplicaStream: takes the history of one peer, in order, and says how far it has come.

Entries arrive one after the other, each followed by its bytes. An entry that cannot be kept is
refused and its bytes are passed over; the peer counts it. What is not committed when the stream
ends is aborted: the peer sends it again.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import ChecksumError, InvalidArgumentError, KvorumError
from kvorum.node.driver import Driver
from kvorum.node.engine.events import (
    AbortReplica,
    ApplyTombstone,
    BeginReplica,
    CommitReplica,
    NamespaceId,
    ReplicaBlock,
    ReplicaGrant,
)
from kvorum.node.service.validation import (
    check_count,
    check_payload,
    check_range,
    check_replica,
)
from kvorum.node.service.writing import Writing
from kvorum.v1 import replication_pb2
from kvorum.v1.frames import Frame

_LOG: Final = logging.getLogger(__name__)

_AGE_MS_MAX: Final = 2**62


@dataclass(slots=True)
class _Entry:
    """The block that is arriving.

    Attributes:
        sequence: its position in the peer's history.
        left: bytes that are still to come.
        happened_ms: when it was stored or deleted at its origin, by this node's clock.
        grant_id: leave to write it; None if its bytes are passed over.
        parts: where its parts go; empty if they are passed over.
    """

    sequence: int
    left: int
    happened_ms: int
    grant_id: int | None = None
    parts: list[Writing] = field(default_factory=list)


class ReplicaStream:
    """One `Replicate`, from one peer.

    Attributes:
        acknowledged: all entries up to this position are done with.

    Args:
        driver: gives leave to write.
    """

    def __init__(self, driver: Driver) -> None:
        self.acknowledged = 0
        self._refused: list[int] = []
        self._has_refused = False
        self._driver = driver
        self._begun = 0
        self._entry: _Entry | None = None

    @property
    def behind_since_ms(self) -> int | None:
        """When what is half here happened at its origin; None if nothing is."""
        return None if self._entry is None else self._entry.happened_ms

    def take(self, frame: Frame[replication_pb2.ReplicateRequest]) -> None:
        """Take one message: entries that begin, and bytes of theirs.

        Raises:
            InvalidArgumentError: the message does not fit the stream, so that nothing behind it
                can be understood.
            TooLargeError: more than 1 MiB of payload, or too many entries or chunks.
        """
        head = frame.head
        check_count(head.entries, limits.BATCH_ITEMS_MAX, "entries", low=0)
        check_count(head.chunks, limits.BATCH_ITEMS_MAX, "chunks", low=0)
        check_payload(frame.payload.nbytes, [chunk.length for chunk in head.chunks])
        entries = deque(head.entries)
        start = 0
        for chunk in head.chunks:
            while entries and entries[0].sequence <= chunk.sequence:
                self._begin(entries.popleft())
            end = start + chunk.length
            self._write(chunk, frame.payload[start:end])
            start = end
        for entry in entries:
            self._begin(entry)

    def abort(self) -> None:
        """Give back the memory of the entry that is half here."""
        if self._entry is not None:
            self._give_up(self._entry)
        self._entry = None

    def take_refused(self) -> list[int]:
        """Return the entries that were refused since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def _begin(self, message: replication_pb2.ReplicateEntry) -> None:
        if self._entry is not None or message.sequence <= self._begun:
            raise InvalidArgumentError(
                f"entry {message.sequence} begins after entry {self._begun}",
                field="entries.sequence",
                limit="growing, each after the bytes of the one before",
            )
        self._begun = message.sequence
        size = sum(sum(part.frame_sizes) for part in message.parts)
        happened_ms = self._driver.clock.now_ms() - min(message.age_ms, _AGE_MS_MAX)
        self._entry = entry = _Entry(message.sequence, size, max(happened_ms, 0))
        try:
            check_replica(message)
            self._admit(entry, message)
        except KvorumError as error:
            self._refuse(entry, error)
        if not entry.left:
            self._end(entry)

    def _admit(self, entry: _Entry, message: replication_pb2.ReplicateEntry) -> None:
        namespace = NamespaceId(message.tenant, message.namespace)
        if message.tombstone:
            self._driver.tell(ApplyTombstone(namespace, message.block.key, message.clock))
            return
        block = ReplicaBlock(
            namespace=namespace,
            fingerprint_digest=message.fingerprint_digest,
            key=message.block.key,
            parent=message.parent,
            index=message.index,
            slot=message.block.slot,
            group=message.group,
            clock=message.clock,
            stored_ms=entry.happened_ms,
            overwrite=message.overwrite,
            frame_sizes=tuple(tuple(part.frame_sizes) for part in message.parts),
            frame_crc32c=tuple(tuple(part.frame_crc32c) for part in message.parts),
        )
        answer = self._driver.tell(BeginReplica(block))
        if isinstance(answer, KvorumError):
            raise answer
        if isinstance(answer, ReplicaGrant):
            entry.grant_id = answer.id
            entry.parts = [
                Writing(self._driver.view(extent), extent.frame_sizes, extent.frame_crc32c)
                for extent in answer.extents
            ]

    def _write(self, chunk: replication_pb2.ReplicateChunk, data: memoryview) -> None:
        entry = self._entry
        if entry is None or chunk.sequence != entry.sequence or data.nbytes > entry.left:
            raise InvalidArgumentError(
                f"{data.nbytes} bytes of entry {chunk.sequence} came out of order",
                field="chunks.sequence",
                limit="the entry that began last, and its size",
            )
        entry.left -= data.nbytes
        if entry.grant_id is not None:
            try:
                check_range(chunk.part, 0, len(entry.parts) - 1, "chunks.part")
                entry.parts[chunk.part].take(chunk.offset, data)
            except KvorumError as error:
                self._refuse(entry, error)
        if not entry.left:
            self._end(entry)

    def _end(self, entry: _Entry) -> None:
        """All bytes of the entry came."""
        if entry.grant_id is not None:
            # No part takes more than its own bytes, so all parts are complete.
            outcome = self._driver.tell(CommitReplica(entry.grant_id))
            entry.grant_id = None
            if isinstance(outcome, KvorumError):
                self._refuse(entry, outcome)
        self.acknowledged = entry.sequence
        self._entry = None

    def _refuse(self, entry: _Entry, error: KvorumError) -> None:
        # An overloaded node refuses many; the peer counts all of them, one line tells why.
        level = logging.DEBUG if self._has_refused else logging.WARNING
        self._has_refused = True
        _LOG.log(level, "replica refused: sequence=%d: %s", entry.sequence, error)
        self._refused.append(entry.sequence)
        self._give_up(entry, is_corrupt=isinstance(error, ChecksumError))

    def _give_up(self, entry: _Entry, *, is_corrupt: bool = False) -> None:
        if entry.grant_id is not None:
            self._driver.tell(AbortReplica(entry.grant_id, is_corrupt))
        entry.grant_id = None
        entry.parts = []
