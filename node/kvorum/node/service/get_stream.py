"""GetStream: sends parts of blocks as frames, straight from the arena.

The bytes of an item are checked before the first of them leaves. Items are granted a few at a time
and given back as soon as gRPC has their bytes, so a slow reader holds little of the arena, and
holds it no longer than its call lasts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeAlias

from kvorum.core.checksum import verify
from kvorum.core.errors import ChecksumError, InvalidArgumentError, NamespaceNotFoundError
from kvorum.node.driver import Driver
from kvorum.node.engine.events import (
    BeginRead,
    Corrupt,
    EndRead,
    Extent,
    Miss,
    NamespaceId,
    ReadGrant,
    ReadItem,
)
from kvorum.node.packer import FRAME_HEAD_BYTES, Packer
from kvorum.node.service.wire import miss_value
from kvorum.v1 import cache_pb2
from kvorum.v1.frames import Frame

Send: TypeAlias = "Callable[[Frame[cache_pb2.GetResponse]], Awaitable[None]]"

_GRANTED_BYTES: Final = 4 << 20
_GRANTED_ITEMS_MAX: Final = 64
_NOTHING: Final = memoryview(b"")
_KEPT_REASONS: Final = frozenset({Miss.FINGERPRINT, Miss.CHECKSUM})


class _Part:
    """The frames that were asked for, of a part that may be read."""

    def __init__(self, grant: ReadGrant, item: cache_pb2.GetItem, data: memoryview) -> None:
        extent: Extent = grant.extent
        end = item.frame_end or len(extent.frame_sizes)
        start = sum(extent.frame_sizes[: item.frame_begin])
        self.group = grant.group
        self.frame_sizes = extent.frame_sizes[item.frame_begin : end]
        self.frame_crc32c = extent.frame_crc32c[item.frame_begin : end]
        self.data = data[start : start + sum(self.frame_sizes)]


class GetStream:
    """One `Get`.

    Args:
        driver: gives leave to read.
        namespace: where to read.
        fingerprint_digest: the fingerprint under which to read.
        lease_broken: whether the reader's lease is of an earlier life of this node, so that what
            is absent may have gone with it.
        send: hands a frame to gRPC, which has copied the bytes when it returns.
    """

    def __init__(
        self,
        driver: Driver,
        namespace: NamespaceId,
        fingerprint_digest: bytes,
        send: Send,
        *,
        lease_broken: bool,
    ) -> None:
        self._driver = driver
        self._namespace = namespace
        self._fingerprint_digest = fingerprint_digest
        self._send = send
        self._lease_broken = lease_broken
        self._frame = Packer(cache_pb2.GetResponse())
        self._granted: set[int] = set()
        self._packed: list[int] = []
        self._part_bytes = _GRANTED_BYTES

    async def run(self, items: Sequence[cache_pb2.GetItem], owned: Sequence[bool]) -> None:
        """Send every item, in order. No grant outlives this call, however it ends.

        Args:
            items: what to read.
            owned: whether each item's slot is this shard's; what is not is answered STALE_EPOCH.

        Raises:
            InvalidArgumentError: a range goes beyond the frames of its item.
        """
        try:
            for batch in self._batches(len(items)):
                grants = self._begin(items, owned, batch)
                for index in batch:
                    await self._send_item(index, items[index], grants.get(index, Miss.STALE_EPOCH))
            await self._flush()
        finally:
            for grant_id in self._granted:
                self._driver.tell(EndRead(grant_id))

    def _batches(self, count: int) -> Iterator[range]:
        """Cut the items into runs of about 4 MiB, going by the size of the last one granted."""
        start = 0
        while start < count:
            size = max(_GRANTED_BYTES // self._part_bytes, 1)
            end = min(start + min(size, _GRANTED_ITEMS_MAX), count)
            yield range(start, end)
            start = end

    def _begin(
        self, items: Sequence[cache_pb2.GetItem], owned: Sequence[bool], batch: range
    ) -> dict[int, ReadGrant | Miss]:
        asked = [index for index in batch if owned[index]]
        wanted = [items[index] for index in asked]
        event = BeginRead(
            self._namespace,
            self._fingerprint_digest,
            tuple(ReadItem(item.block.key, item.part, item.group) for item in wanted),
        )
        try:
            answers = self._driver.tell(event)
        except NamespaceNotFoundError:
            if not self._lease_broken:
                raise
            return {}  # a new life has not heard of the namespace yet; all is STALE_EPOCH
        for answer in answers:
            if isinstance(answer, ReadGrant):
                self._granted.add(answer.id)
                self._part_bytes = answer.extent.size
        return dict(zip(asked, answers, strict=True))

    async def _send_item(
        self, index: int, item: cache_pb2.GetItem, grant: ReadGrant | Miss
    ) -> None:
        if isinstance(grant, Miss):
            await self._send_miss(index, grant)
            return
        _check_range(index, item, grant.extent)
        part = _Part(grant, item, self._driver.view(grant.extent))
        try:
            verify(part.data, part.frame_sizes, part.frame_crc32c)
        except ChecksumError:
            self._driver.tell(Corrupt(grant.id))
            await self._send_miss(index, Miss.CHECKSUM)
            return
        await self._send_part(index, part)
        self._packed.append(grant.id)

    async def _send_part(self, index: int, part: _Part) -> None:
        offset, size = 0, part.data.nbytes
        while offset < size:
            frame = await self._open_frame()
            end = min(offset + frame.room, size)
            chunk = frame.head.chunks.add(item=index, offset=offset, length=end - offset)
            frame.add(part.data[offset:end])
            if not offset:
                chunk.header.frame_sizes.extend(part.frame_sizes)
                chunk.header.frame_crc32c.extend(part.frame_crc32c)
                chunk.header.group = part.group
                frame.add(_NOTHING, FRAME_HEAD_BYTES * len(part.frame_sizes))
            offset = end

    async def _send_miss(self, index: int, miss: Miss) -> None:
        if self._lease_broken and miss not in _KEPT_REASONS:
            miss = Miss.STALE_EPOCH
        frame = await self._open_frame()
        chunk = frame.head.chunks.add(item=index)
        chunk.header.miss = miss_value(miss)
        frame.add(_NOTHING)

    async def _open_frame(self) -> Packer[cache_pb2.GetResponse]:
        if self._frame.full:
            await self._flush()
        return self._frame

    async def _flush(self) -> None:
        """Send the frame, and end the reads whose last bytes are in it."""
        frame, self._frame = self._frame, Packer(cache_pb2.GetResponse())
        if not frame.empty:
            await self._send(frame.frame())
        for grant_id in self._packed:
            self._granted.discard(grant_id)
            self._driver.tell(EndRead(grant_id))
        self._packed.clear()


def _check_range(index: int, item: cache_pb2.GetItem, extent: Extent) -> None:
    frames = len(extent.frame_sizes)
    for name in ("frame_begin", "frame_end"):
        if getattr(item, name) > frames - (name == "frame_begin"):
            raise InvalidArgumentError(
                f"{name} is {getattr(item, name)}",
                field=f"items[{index}].{name}",
                limit=f"the part has {frames} frames",
            )
