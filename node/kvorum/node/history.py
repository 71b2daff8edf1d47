"""HistoryWriter: steps of this node's history as frames, with the blocks' bytes from the arena.

A block is read when its turn comes. One that is gone by then, or whose bytes are wrong, is passed
over: nobody needs it any more, or nobody may have it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kvorum.core.checksum import verify
from kvorum.core.errors import ChecksumError
from kvorum.node.driver import Driver
from kvorum.node.engine.events import (
    Corrupt,
    EndRead,
    Extent,
    Replicate,
    ReplicateTombstone,
    Snapshot,
)
from kvorum.node.engine.pipe import PipeEntry
from kvorum.node.packer import FRAME_HEAD_BYTES, Packer
from kvorum.v1 import common_pb2, replication_pb2
from kvorum.v1.frames import Frame

Write: TypeAlias = "Callable[[Frame[replication_pb2.ReplicateRequest]], Awaitable[None]]"

_ENTRY_HEAD_BYTES: Final = 512
_NOTHING: Final = memoryview(b"")


class HistoryWriter:
    """Writes one connection's worth of history.

    Args:
        driver: reads blocks.
        write: hands a frame to gRPC, which has copied the bytes when it returns.
    """

    def __init__(self, driver: Driver, write: Write) -> None:
        self._driver = driver
        self._write = write
        self._frame = Packer(replication_pb2.ReplicateRequest())
        self._reading: set[int] = set()
        self._packed: list[int] = []

    async def send(self, entry: PipeEntry) -> bool:
        """Send one step; return False if it was passed over.

        Raises:
            OverloadedError: too many reads are open.
        """
        effect = entry.effect
        if isinstance(effect, ReplicateTombstone):
            await self._send_tombstone(entry, effect)
            return True
        snapshot = self._open(effect)
        if snapshot is None:
            return False
        await self._send_block(entry.sequence, snapshot)
        return True

    async def flush(self) -> None:
        """Send what is in the frame, and end the reads whose last bytes are in it."""
        frame, self._frame = self._frame, Packer(replication_pb2.ReplicateRequest())
        if not frame.empty:
            await self._write(frame.frame())
        for grant_id in self._packed:
            self._end(grant_id)
        self._packed.clear()

    def close(self) -> None:
        """End every read."""
        for grant_id in tuple(self._reading):
            self._end(grant_id)

    def _open(self, effect: Replicate) -> Snapshot | None:
        snapshot = self._driver.snapshot(effect.namespace, effect.key)
        if snapshot is None:
            return None
        self._reading.add(snapshot.grant_id)
        try:
            for extent in snapshot.extents:
                verify(self._driver.view(extent), extent.frame_sizes, extent.frame_crc32c)
        except ChecksumError:
            self._driver.tell(Corrupt(snapshot.grant_id))
            self._end(snapshot.grant_id)
            return None
        return snapshot

    def _end(self, grant_id: int) -> None:
        self._reading.discard(grant_id)
        self._driver.tell(EndRead(grant_id))

    async def _send_block(self, sequence: int, snapshot: Snapshot) -> None:
        block = snapshot.block
        message = replication_pb2.ReplicateEntry(
            sequence=sequence,
            tenant=block.namespace.tenant,
            namespace=block.namespace.name,
            fingerprint_digest=block.fingerprint_digest,
            block=common_pb2.BlockRef(key=block.key, slot=block.slot),
            parent=block.parent,
            index=block.index,
            group=block.group,
            clock=block.clock,
            age_ms=max(self._driver.clock.now_ms() - block.stored_ms, 0),
            overwrite=block.overwrite,
        )
        for sizes, checksums in zip(block.frame_sizes, block.frame_crc32c, strict=True):
            message.parts.add(frame_sizes=sizes, frame_crc32c=checksums)
        await self._begin(message, sum(len(sizes) for sizes in block.frame_sizes))
        for part, extent in enumerate(snapshot.extents):
            await self._send_part(sequence, part, extent)
        self._packed.append(snapshot.grant_id)

    async def _send_tombstone(self, entry: PipeEntry, effect: ReplicateTombstone) -> None:
        message = replication_pb2.ReplicateEntry(
            sequence=entry.sequence,
            tenant=effect.namespace.tenant,
            namespace=effect.namespace.name,
            block=common_pb2.BlockRef(key=effect.key, slot=effect.slot),
            clock=effect.clock,
            age_ms=max(self._driver.clock.now_ms() - entry.pushed_ms, 0),
            tombstone=True,
        )
        await self._begin(message, 0)

    async def _begin(self, message: replication_pb2.ReplicateEntry, frames: int) -> None:
        packer = await self._room()
        packer.head.entries.append(message)
        packer.add(_NOTHING, _ENTRY_HEAD_BYTES + FRAME_HEAD_BYTES * frames)

    async def _send_part(self, sequence: int, part: int, extent: Extent) -> None:
        data, offset = self._driver.view(extent), 0
        while offset < data.nbytes:
            packer = await self._room()
            end = min(offset + packer.room, data.nbytes)
            packer.head.chunks.add(sequence=sequence, part=part, offset=offset, length=end - offset)
            packer.add(data[offset:end])
            offset = end

    async def _room(self) -> Packer[replication_pb2.ReplicateRequest]:
        if self._frame.full:
            await self.flush()
        return self._frame
