"""CRC-32C of payload frames: computed by the writer, checked by the node and by every reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastcrc import crc32

from kvorum.core.errors import ChecksumError


def crc32c(data: bytes | bytearray | memoryview, initial: int = 0) -> int:
    """Return the CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `data`, going on from `initial`."""
    return crc32.iscsi(data, initial)


def frame_views(data: memoryview, frame_sizes: Iterable[int]) -> list[memoryview]:
    """Cut `data` into consecutive frames, without a copy."""
    views, start = [], 0
    for size in frame_sizes:
        views.append(data[start : start + size])
        start += size
    return views


def frame_checksums(data: memoryview, frame_sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the CRC-32C of each consecutive frame of `data`."""
    return tuple(crc32c(frame) for frame in frame_views(data, frame_sizes))


def verify(data: memoryview, frame_sizes: Sequence[int], checksums: Sequence[int]) -> None:
    """Check every frame of `data`.

    Raises:
        ChecksumError: a frame's CRC-32C differs; the message names the frame.
    """
    for index, frame in enumerate(frame_views(data, frame_sizes)):
        if crc32c(frame) != checksums[index]:
            raise ChecksumError(
                f"frame {index} of {len(frame_sizes)} has another CRC-32C than announced",
                field="payload",
            )
