"""CRC-32C of payload frames: computed by the writer, checked by the node and by every reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fastcrc import crc32

from kvorum.core.errors import ChecksumError, InvalidArgumentError

_EMPTY: Final = memoryview(b"")


def crc32c(data: bytes | bytearray | memoryview, initial: int = 0) -> int:
    """Return the CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `data`, going on from `initial`."""
    return crc32.iscsi(data, initial)


def frame_views(data: memoryview, frame_sizes: Iterable[int]) -> list[memoryview]:
    """Cut `data` into consecutive frames of so many bytes, without a copy.

    Raises:
        InvalidArgumentError: the frames and `data` differ in length, or `data` is not contiguous.
    """
    if not data.c_contiguous:
        raise InvalidArgumentError(
            "payload is scattered in memory", field="payload", limit="one contiguous buffer"
        )
    octets = data.cast("B") if data.nbytes else _EMPTY  # an empty view cannot be cast
    sizes = list(frame_sizes)
    views, start = [], 0
    for size in sizes:
        views.append(octets[start : start + size])
        start += size
    if start != octets.nbytes or any(size < 0 for size in sizes):
        raise InvalidArgumentError(
            f"the frames have {start} bytes and the payload {octets.nbytes}",
            field="frame_sizes",
            limit="the length of the payload",
        )
    return views


def frame_checksums(data: memoryview, frame_sizes: Iterable[int]) -> tuple[int, ...]:
    """Return the CRC-32C of each consecutive frame of `data`.

    Raises:
        InvalidArgumentError: see `frame_views`.
    """
    return tuple(crc32c(frame) for frame in frame_views(data, frame_sizes))


def verify(data: memoryview, frame_sizes: Sequence[int], checksums: Sequence[int]) -> None:
    """Check every frame of `data`.

    Raises:
        ChecksumError: a frame's CRC-32C differs; the message names the frame.
        InvalidArgumentError: see `frame_views`; or frames and checksums differ in number.
    """
    frames = frame_views(data, frame_sizes)
    if len(frames) != len(checksums):
        raise InvalidArgumentError(
            f"{len(frames)} frames have {len(checksums)} checksums",
            field="frame_crc32c",
            limit="one for each frame",
        )
    for index, (frame, announced) in enumerate(zip(frames, checksums, strict=True)):
        if crc32c(frame) != announced:
            raise ChecksumError(
                f"frame {index} of {len(frames)} has another CRC-32C than announced",
                field="payload",
            )
