"""Packing: blocks as messages of a `Put`, each with up to 1 MiB of payload; no byte is copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvorum.core import limits
from kvorum.v1 import cache_pb2
from kvorum.v1.frames import Frame


class _Message:
    """The message that is being filled."""

    def __init__(self) -> None:
        self.room = limits.FRAME_BYTES
        self._head = cache_pb2.PutRequest()
        self._pieces: list[memoryview] = []
        self._chunk: cache_pb2.PutChunk | None = None

    def end_item(self) -> None:
        """What is added next belongs to another item."""
        self._chunk = None

    def add(self, item: int, offset: int, piece: memoryview) -> None:
        """Add bytes that follow the last ones of their item."""
        if self._chunk is None:
            self._chunk = self._head.chunks.add(item=item, offset=offset)
        self._chunk.length += piece.nbytes
        self._pieces.append(piece)
        self.room -= piece.nbytes

    def frame(self) -> Frame[cache_pb2.PutRequest]:
        """Return the message."""
        return Frame(self._head, pieces=self._pieces)


def pack(items: Iterable[Sequence[memoryview]]) -> Iterator[Frame[cache_pb2.PutRequest]]:
    """Yield the messages that carry items, one after the other; small ones share a message.

    Args:
        items: the bytes of each item, as contiguous runs.
    """
    message = _Message()
    for index, runs in enumerate(items):
        offset = 0
        for run in runs:
            at = 0
            while at < run.nbytes:
                piece = run[at : at + message.room]
                message.add(index, offset, piece)
                at += piece.nbytes
                offset += piece.nbytes
                if not message.room:
                    yield message.frame()
                    message = _Message()
        message.end_item()
    if message.room < limits.FRAME_BYTES:
        yield message.frame()
