"""Assembly: takes the frames of one answer apart, and lets no wrong byte count as received.

Everything a node sends is checked against what was asked: order, offsets, sizes, the group, and
the CRC-32C of every frame, over the bytes as they arrived. An item counts as received when its
last frame has the checksum that its header announced. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvorum.client.destinations import Destination
from kvorum.client.reasons import miss_of
from kvorum.client.results import MissReason
from kvorum.core.checksum import crc32c
from kvorum.core.errors import ChecksumError, KvorumError
from kvorum.v1 import cache_pb2
from kvorum.v1.frames import Frame


@dataclass(frozen=True, slots=True)
class Expected:
    """One item that was asked for.

    Attributes:
        position: position of the block in the destination.
        group: the group that must come.
        frame_sizes: bytes of each frame that must come; None if the header alone knows.
    """

    position: int
    group: int
    frame_sizes: tuple[int, ...] | None


class _Item:
    """One item as it arrives."""

    def __init__(self, expected: Expected) -> None:
        self.expected = expected
        self.received = 0
        self.size = 0
        # True when received, a reason when missed, False when left to another answer.
        self.outcome: MissReason | bool | None = None
        self._sizes: Sequence[int] = ()
        self._sums: Sequence[int] = ()
        self._frame = 0
        self._left = 0
        self._crc = 0

    @property
    def begun(self) -> bool:
        return bool(self._sizes)

    def begin(self, header: cache_pb2.ItemHeader) -> None:
        """Take the header.

        Raises:
            ChecksumError: it announces something else than was asked for.
        """
        sizes = tuple(header.frame_sizes)
        wanted = self.expected.frame_sizes
        if header.group != self.expected.group:
            raise ChecksumError("another group came than was asked for", field="header.group")
        if not sizes or 0 in sizes or (wanted is not None and sizes != wanted):
            raise ChecksumError("frames of other sizes came", field="header.frame_sizes")
        if len(header.frame_crc32c) != len(sizes):
            raise ChecksumError("not every frame has a checksum", field="header.frame_crc32c")
        self._sizes, self._sums = sizes, tuple(header.frame_crc32c)
        self.size = sum(sizes)
        self._left = sizes[0]

    def check(self, data: memoryview) -> None:
        """Take the next bytes into the checksums.

        Raises:
            ChecksumError: a frame that they end has another checksum than announced.
        """
        at = 0
        while at < data.nbytes:
            piece = data[at : at + self._left]
            self._crc = crc32c(piece, self._crc)
            at += piece.nbytes
            self._left -= piece.nbytes
            if not self._left:
                self._end_frame()
        self.received += data.nbytes

    def _end_frame(self) -> None:
        if self._crc != self._sums[self._frame]:
            raise ChecksumError(f"frame {self._frame} has another CRC-32C", field="payload")
        self._frame += 1
        self._crc = 0
        if self._frame < len(self._sizes):
            self._left = self._sizes[self._frame]


class Assembly:
    """One answer under way.

    Attributes:
        payload_bytes: payload that arrived.
        corrupt: items that were not what was announced.

    Args:
        expected: the items that were asked for, in order.
        destination: where their bytes go.
        claim: says whether this answer may write to a position; asked once for each item.
        done: is told of each position with its outcome: True if it was received, False if it is
            left to the answer that has the claim, or why it is missing.
    """

    def __init__(
        self,
        expected: Sequence[Expected],
        destination: Destination,
        claim: Callable[[int], bool],
        done: Callable[[int, MissReason | bool], None],
    ) -> None:
        self.payload_bytes = 0
        self.corrupt = 0
        self._items = [_Item(item) for item in expected]
        self._open = len(self._items)
        self._destination = destination
        self._claim = claim
        self._done = done

    @property
    def over(self) -> bool:
        """Whether nothing more can come of this answer."""
        return not self._open

    def take(self, frame: Frame[cache_pb2.GetResponse] | None) -> None:
        """Take one message of the answer.

        Raises:
            ChecksumError: the message breaks the protocol; nothing behind it can be understood.
        """
        if frame is None:  # what gRPC makes of a message that cannot be parsed
            raise ChecksumError("what came is no message", field="response")
        self.payload_bytes += frame.payload.nbytes
        if sum(chunk.length for chunk in frame.head.chunks) != frame.payload.nbytes:
            raise ChecksumError("the chunks do not cover the payload", field="chunks.length")
        at = 0
        for chunk in frame.head.chunks:
            if chunk.item >= len(self._items):
                raise ChecksumError("an item came that was not asked for", field="chunks.item")
            item = self._items[chunk.item]
            data = frame.payload[at : at + chunk.length]
            at += chunk.length
            if item.outcome is None:
                self._take_chunk(item, chunk, data)
            elif item.outcome is True:
                raise ChecksumError("an item came twice", field="chunks.item")

    def fail_rest(self, reason: MissReason) -> None:
        """The answer is over: what has not come will not come."""
        for item in self._items:
            if item.outcome is None:
                self._end(item, reason)

    def _take_chunk(self, item: _Item, chunk: cache_pb2.GetChunk, data: memoryview) -> None:
        try:
            miss = miss_of(chunk.aborted or chunk.header.miss)
            if miss is not None:
                self._end(item, miss)
                return
            self._place(item, chunk, data)
        except KvorumError:
            self.corrupt += 1
            self._end(item, MissReason.CHECKSUM)

    def _place(self, item: _Item, chunk: cache_pb2.GetChunk, data: memoryview) -> None:
        position = item.expected.position
        if chunk.HasField("header"):
            if item.begun:
                raise ChecksumError("an item has two headers", field="chunks.header")
            item.begin(chunk.header)
            if not self._claim(position):
                self._end(item, reason=False)
                return
            self._destination.begin(position, item.size)
        if not item.begun:
            raise ChecksumError("bytes came before their header", field="chunks.header")
        end = item.received + data.nbytes
        if chunk.offset != item.received or end > item.size:
            raise ChecksumError("bytes came out of order", field="chunks.offset")
        item.check(data)
        self._destination.write(position, chunk.offset, data)
        if item.received == item.size:
            self._end(item, reason=True)

    def _end(self, item: _Item, reason: MissReason | bool) -> None:
        item.outcome = reason
        self._open -= 1
        self._done(item.expected.position, reason)
