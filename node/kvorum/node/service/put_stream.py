"""PutStream: takes parts of blocks, straight into the arena.

Memory is asked for when the first bytes of an item arrive, not when it is announced: an empty
promise costs nothing. Every frame is checked as it arrives. What is not committed when the call
ends, for whatever reason, is aborted, and its memory comes back at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import (
    ChecksumError,
    InvalidArgumentError,
    KvorumError,
    NotOwnerError,
)
from kvorum.node.driver import Driver
from kvorum.node.engine.events import (
    AbortWrite,
    BeginWrite,
    CommitWrite,
    Condition,
    NamespaceId,
    WriteGrant,
    WriteItem,
    WriteReply,
)
from kvorum.node.service.validation import check_count, check_payload
from kvorum.node.service.writing import Writing
from kvorum.v1 import cache_pb2
from kvorum.v1.frames import Frame

CONDITIONS: Final = {
    cache_pb2.PUT_CONDITION_UNSPECIFIED: Condition.IF_ABSENT,
    cache_pb2.PUT_CONDITION_IF_ABSENT: Condition.IF_ABSENT,
    cache_pb2.PUT_CONDITION_OVERWRITE: Condition.OVERWRITE,
    cache_pb2.PUT_CONDITION_IF_GROUP: Condition.IF_GROUP,
}


class PutStream:
    """One `Put`.

    Args:
        driver: gives leave to write.
        namespace: where to store.
        opening: what was announced, validated.
        owned: whether each item's slot is this shard's.
    """

    def __init__(
        self,
        driver: Driver,
        namespace: NamespaceId,
        opening: cache_pb2.PutOpen,
        owned: Sequence[bool],
    ) -> None:
        self._driver = driver
        self._namespace = namespace
        self._opening = opening
        self._grants: dict[int, WriteGrant] = {}
        self._writings: dict[int, Writing] = {}
        self._results: dict[int, WriteReply | KvorumError] = {
            index: _not_owned(index) for index, ours in enumerate(owned) if not ours
        }

    def take(self, frame: Frame[cache_pb2.PutRequest]) -> None:
        """Take one message's payload.

        What is wrong with one item refuses that item; the others go on.

        Raises:
            InvalidArgumentError: the message does not fit the stream, so that nothing behind it
                can be understood.
            TooLargeError: more than 1 MiB of payload.
        """
        _check_frame(frame, len(self._opening.items))
        self._begin({chunk.item: None for chunk in frame.head.chunks if chunk.length})
        start = 0
        for chunk in frame.head.chunks:
            data = frame.payload[start : start + chunk.length]
            start += chunk.length
            if chunk.item in self._writings:
                self._write(chunk, data)

    def results(self) -> list[WriteReply | KvorumError]:
        """Return what became of each item, after `abort`; what is incomplete was refused."""
        return [
            self._results.get(index) or _incomplete(index, 0, item)
            for index, item in enumerate(self._opening.items)
        ]

    def abort(self) -> None:
        """Give back the memory of everything that is not committed."""
        for index in list(self._grants):
            writing, item = self._writings[index], self._opening.items[index]
            self._refuse(index, _incomplete(index, writing.written, item))

    def _begin(self, mentioned: dict[int, None]) -> None:
        """Ask for the memory of the items that this message is the first to bring bytes of."""
        known = self._results.keys() | self._writings.keys()
        new = [index for index in mentioned if index not in known]
        if not new:
            return
        answers = self._driver.tell(
            BeginWrite(
                self._namespace,
                self._opening.namespace.fingerprint_digest,
                self._opening.writer,
                CONDITIONS[self._opening.condition],
                tuple(_write_item(self._opening.items[index]) for index in new),
            )
        )
        for index, answer in zip(new, answers, strict=True):
            if isinstance(answer, WriteGrant):
                extent = answer.extent
                self._grants[index] = answer
                self._writings[index] = Writing(
                    self._driver.view(extent), extent.frame_sizes, extent.frame_crc32c
                )
            else:
                self._results[index] = answer

    def _write(self, chunk: cache_pb2.PutChunk, data: memoryview) -> None:
        writing = self._writings[chunk.item]
        try:
            writing.take(chunk.offset, data)
        except KvorumError as error:
            self._refuse(chunk.item, error)
            return
        if writing.complete:
            grant = self._grants.pop(chunk.item)
            del self._writings[chunk.item]
            self._results[chunk.item] = self._driver.tell(CommitWrite(grant.id))

    def _refuse(self, index: int, error: KvorumError) -> None:
        grant = self._grants.pop(index)
        del self._writings[index]
        self._driver.tell(AbortWrite(grant.id, isinstance(error, ChecksumError)))
        self._results[index] = error


def _write_item(item: cache_pb2.PutItem) -> WriteItem:
    return WriteItem(
        key=item.block.key,
        parent=item.parent,
        index=item.index,
        slot=item.block.slot,
        part=item.part,
        parts=item.parts,
        frame_sizes=tuple(item.frame_sizes),
        frame_crc32c=tuple(item.frame_crc32c),
        if_group=item.if_group,
    )


def _check_frame(frame: Frame[cache_pb2.PutRequest], items: int) -> None:
    if frame.head.HasField("open"):
        raise InvalidArgumentError(
            "a second message opens the store", field="open", limit="the first message only"
        )
    check_count(frame.head.chunks, limits.BATCH_ITEMS_MAX, "chunks", low=0)
    check_payload(frame.payload.nbytes, [chunk.length for chunk in frame.head.chunks])
    for index, chunk in enumerate(frame.head.chunks):
        if chunk.item >= items:
            raise InvalidArgumentError(
                f"item is {chunk.item}", field=f"chunks[{index}].item", limit=f"0 to {items - 1}"
            )


def _incomplete(index: int, written: int, item: cache_pb2.PutItem) -> InvalidArgumentError:
    size = sum(item.frame_sizes)
    return InvalidArgumentError(
        f"{written} of {size} bytes came", field=f"open.items[{index}]", limit=f"{size} bytes"
    )


def _not_owned(index: int) -> NotOwnerError:
    return NotOwnerError(
        "another shard owns the slot",
        field=f"open.items[{index}].block.slot",
        limit="a slot of this shard",
    )
