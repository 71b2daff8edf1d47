"""Writing: bytes of one part as they arrive, straight into the arena, checked frame by frame."""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.core.checksum import crc32c
from kvorum.core.errors import ChecksumError, InvalidArgumentError, TooLargeError


class Writing:
    """The place of one part in the arena, how far it is filled, and the running checksum.

    Args:
        view: the extent.
        frame_sizes: bytes of each layer frame.
        frame_crc32c: CRC-32C that each must have.
    """

    def __init__(
        self, view: memoryview, frame_sizes: Sequence[int], frame_crc32c: Sequence[int]
    ) -> None:
        self.written = 0
        self._view = view
        self._frame_sizes = frame_sizes
        self._frame_crc32c = frame_crc32c
        self._frame = 0
        self._left = frame_sizes[0]
        self._crc = 0

    @property
    def complete(self) -> bool:
        """Whether all bytes arrived."""
        return self.written == self._view.nbytes

    def take(self, offset: int, data: memoryview) -> None:
        """Put the next bytes where they belong.

        Raises:
            InvalidArgumentError: they are not the next ones.
            TooLargeError: they are more than was announced.
            ChecksumError: a frame that they end has another CRC-32C than announced.
        """
        if offset != self.written:
            raise InvalidArgumentError(
                f"bytes of offset {offset} came after {self.written} bytes",
                field="chunks.offset",
                limit=f"{self.written}: in order and without a gap",
            )
        end = offset + data.nbytes
        if end > self._view.nbytes:
            raise TooLargeError(
                f"{end} bytes came", field="chunks.length", limit=f"{self._view.nbytes} bytes"
            )
        target = self._view[offset:end]
        target[:] = data
        self.written = end
        self._check(target)

    def _check(self, data: memoryview) -> None:
        """Check what now lies in the arena, not what lay in the message."""
        start = 0
        while start < data.nbytes:
            piece = data[start : start + self._left]
            self._crc = crc32c(piece, self._crc)
            self._left -= piece.nbytes
            start += piece.nbytes
            if not self._left:
                self._end_frame()

    def _end_frame(self) -> None:
        if self._crc != self._frame_crc32c[self._frame]:
            raise ChecksumError(
                f"frame {self._frame} of {len(self._frame_sizes)} has another CRC-32C than "
                "announced",
                field="payload",
            )
        self._frame += 1
        self._crc = 0
        if self._frame < len(self._frame_sizes):
            self._left = self._frame_sizes[self._frame]
