"""Is what a writer announces a block of this namespace? Checked before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import FingerprintError, InvalidArgumentError, TooLargeError
from kvorum.core.keys import slot_of
from kvorum.node.engine.entries import Namespace
from kvorum.node.engine.events import ReplicaBlock, WriteItem

_INDEX_MAX: Final = limits.PROMPT_TOKENS_MAX


def check_item(namespace: Namespace, item: WriteItem) -> None:
    """Check one part of a block.

    Raises:
        InvalidArgumentError: names the field and its limit.
        TooLargeError: the part has too many frames or bytes.
        FingerprintError: the part is not of the shape that the namespace's fingerprint has.
    """
    _check_place(namespace, item)
    if item.parts != namespace.parts:
        raise FingerprintError(
            f"the block has {item.parts} parts", field="items.parts", limit=str(namespace.parts)
        )
    check_range("items.part", item.part, item.parts)
    _check_frames(namespace, item.frame_sizes, item.frame_crc32c)


def check_replica(namespace: Namespace, block: ReplicaBlock) -> None:
    """Check a whole block that a peer offers; raises as `check_item` does."""
    _check_place(namespace, block)
    if len(block.frame_sizes) != namespace.parts or len(block.frame_crc32c) != namespace.parts:
        raise FingerprintError(
            f"the block has {len(block.frame_sizes)} parts",
            field="entries.parts",
            limit=str(namespace.parts),
        )
    if not 0 < block.group < 1 << 64:
        raise InvalidArgumentError(
            f"the group is {block.group}", field="entries.group", limit="1 to 2**64 - 1"
        )
    for sizes, checksums in zip(block.frame_sizes, block.frame_crc32c, strict=True):
        _check_frames(namespace, sizes, checksums)


def check_keys(keys: Iterable[bytes], count_max: int) -> None:
    """Check the keys of a request.

    Raises:
        TooLargeError: there are too many.
        InvalidArgumentError: one is not 64 bytes long.
    """
    for count, key in enumerate(keys):
        if count >= count_max:
            raise TooLargeError("too many blocks", field="keys", limit=f"{count_max} blocks")
        _check_key("keys", key)


def check_range(field: str, value: int, end: int) -> None:
    """Check that 0 <= value < end.

    Raises:
        InvalidArgumentError: it is not.
    """
    if not 0 <= value < end:
        raise InvalidArgumentError(f"{field} is {value}", field=field, limit=f"0 to {end - 1}")


def _check_place(namespace: Namespace, block: WriteItem | ReplicaBlock) -> None:
    _check_key("block.key", block.key)
    _check_key("parent", block.parent)
    check_range("index", block.index, _INDEX_MAX)
    check_range("block.slot", block.slot, limits.SLOTS)
    if namespace.first_in_segment(block.index) and block.slot != slot_of(block.key):
        raise InvalidArgumentError(
            f"the slot is {block.slot}", field="block.slot", limit=f"{slot_of(block.key)}"
        )
    if block.parent == block.key:
        raise InvalidArgumentError("the block is its own parent", field="parent")


def _check_key(field: str, key: bytes) -> None:
    if len(key) != limits.KEY_BYTES:
        raise InvalidArgumentError(
            f"a key has {len(key)} bytes", field=field, limit=f"{limits.KEY_BYTES} bytes"
        )


def _check_frames(namespace: Namespace, sizes: tuple[int, ...], checksums: tuple[int, ...]) -> None:
    field = "items.frame_sizes"
    if not sizes or len(sizes) != len(checksums):
        raise InvalidArgumentError(
            f"{len(sizes)} frames and {len(checksums)} checksums",
            field=field,
            limit="at least 1, and one checksum for each",
        )
    if len(sizes) > limits.PART_FRAMES_MAX:
        raise TooLargeError(
            f"the part has {len(sizes)} frames",
            field=field,
            limit=f"{limits.PART_FRAMES_MAX} frames",
        )
    if min(sizes) <= 0:
        raise InvalidArgumentError("a frame has no bytes", field=field, limit="at least 1 byte")
    if sum(sizes) > limits.PART_BYTES_MAX:
        raise TooLargeError(
            f"the part has {sum(sizes)} bytes",
            field=field,
            limit=f"{limits.PART_BYTES_MAX} bytes",
        )
    want = namespace.frame_sizes
    if want is not None and sizes != want:
        raise FingerprintError(
            f"the part has {len(sizes)} frames, {sum(sizes)} bytes",
            field=field,
            limit=f"{len(want)} frames, {sum(want)} bytes, as the fingerprint says",
        )
