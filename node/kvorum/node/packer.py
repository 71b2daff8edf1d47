"""Packer: fills frames of at most 1 MiB with runs of arena bytes, without copying any."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from kvorum.core import limits
from kvorum.v1.frames import Frame

HeadT = TypeVar("HeadT", bound=Message)

CHUNK_HEAD_BYTES: Final = 32
"""At least what one chunk takes in a frame's head."""

FRAME_HEAD_BYTES: Final = 9
"""At least what the size and the checksum of one layer frame take in a frame's head."""


class Packer(Generic[HeadT]):
    """The frame that is being filled: at most 1 MiB of payload, and about as much of head.

    Attributes:
        head: the message; its chunks are added by whoever adds bytes.
        room: bytes of payload that still fit in.

    Args:
        head: an empty message.
    """

    def __init__(self, head: HeadT) -> None:
        self.head = head
        self.room = limits.FRAME_BYTES
        self._head_room = limits.FRAME_BYTES
        self._pieces: list[memoryview] = []

    @property
    def full(self) -> bool:
        """Whether nothing more fits in."""
        return self.room <= 0 or self._head_room <= 0

    @property
    def empty(self) -> bool:
        """Whether nothing was added."""
        return self._head_room == limits.FRAME_BYTES

    def add(self, data: memoryview, head_bytes: int = CHUNK_HEAD_BYTES) -> None:
        """Add bytes, which must stay as they are until the frame is encoded.

        Args:
            data: at most `room` bytes.
            head_bytes: about what is added to the head along with them.
        """
        if data.nbytes:
            self._pieces.append(data)
        self.room -= data.nbytes
        self._head_room -= head_bytes

    def frame(self) -> Frame[HeadT]:
        """Return the frame."""
        return Frame(self.head, pieces=self._pieces)
