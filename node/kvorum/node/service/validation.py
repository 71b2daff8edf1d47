"""Validation: every field of every request, checked before anything is done or allocated for it.

Each check raises a typed error that names the field and the limit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import FingerprintError, InvalidArgumentError, TooLargeError
from kvorum.core.names import check_name
from kvorum.v1 import cache_pb2, common_pb2, replication_pb2

_LEASE_MS_MAX: Final = round(limits.LEASE_S_MAX * 1000)
INDEX_MAX: Final = limits.PROMPT_TOKENS_MAX // limits.BLOCK_TOKENS_MULTIPLE - 1


def check_range(value: int, low: int, high: int, field: str) -> None:
    """Check a number.

    Raises:
        InvalidArgumentError: below `low` or above `high`.
    """
    if not low <= value <= high:
        raise InvalidArgumentError(f"{field} is {value}", field=field, limit=f"{low} to {high}")


def check_count(items: Collection[object], high: int, field: str, low: int = 1) -> None:
    """Check how many items there are.

    Raises:
        InvalidArgumentError: fewer than `low`.
        TooLargeError: more than `high`.
    """
    if len(items) < low:
        raise InvalidArgumentError(f"{field} is empty", field=field, limit=f"{low} to {high}")
    if len(items) > high:
        raise TooLargeError(f"{field} has {len(items)} items", field=field, limit=f"{high} items")


def check_key(key: bytes, field: str) -> None:
    """Check a block key.

    Raises:
        InvalidArgumentError: not 64 bytes.
    """
    if len(key) != limits.KEY_BYTES:
        raise InvalidArgumentError(
            f"{field} has {len(key)} bytes", field=field, limit=f"{limits.KEY_BYTES} bytes"
        )


def check_payload(size: int, lengths: Sequence[int]) -> None:
    """Check that the payload of a message is what its chunks say.

    Raises:
        InvalidArgumentError: the chunks have more bytes than the payload, or fewer.
        TooLargeError: more than 1 MiB of payload.
    """
    if size > limits.FRAME_BYTES:
        raise TooLargeError(
            f"payload has {size} bytes", field="payload", limit=f"{limits.FRAME_BYTES} bytes"
        )
    if sum(lengths) != size:
        raise InvalidArgumentError(
            f"the chunks have {sum(lengths)} bytes, the payload {size}",
            field="chunks.length",
            limit="the payload's length",
        )


def check_namespace(ref: common_pb2.NamespaceRef) -> None:
    """Check a namespace's name and digest.

    Raises:
        InvalidArgumentError: the name is malformed.
        FingerprintError: there is no digest of a fingerprint.
    """
    check_name(ref.name, "namespace.name")
    if len(ref.fingerprint_digest) != limits.KEY_BYTES:
        raise FingerprintError(
            f"the digest of the fingerprint has {len(ref.fingerprint_digest)} bytes",
            field="namespace.fingerprint_digest",
            limit=f"{limits.KEY_BYTES} bytes",
        )


def check_lease(lease_ms: int) -> None:
    """Check how long a lease is asked for.

    Raises:
        InvalidArgumentError: longer than 60 s.
    """
    check_range(lease_ms, 0, _LEASE_MS_MAX, "lease_ms")


def check_block(block: common_pb2.BlockRef, field: str) -> None:
    """Check one block's name.

    Raises:
        InvalidArgumentError: the key or the slot is malformed.
    """
    check_key(block.key, f"{field}.key")
    check_range(block.slot, 0, limits.SLOTS - 1, f"{field}.slot")


def check_blocks(blocks: Sequence[common_pb2.BlockRef]) -> None:
    """Check the blocks of a batch.

    Raises:
        InvalidArgumentError: none, or a malformed one.
        TooLargeError: too many.
    """
    check_count(blocks, limits.BATCH_ITEMS_MAX, "blocks")
    for index, block in enumerate(blocks):
        check_block(block, f"blocks[{index}]")


def check_lookup(request: cache_pb2.LookupRequest) -> None:
    """Check a lookup.

    Raises:
        InvalidArgumentError: neither or both of token ids and keys, a malformed key, a lease that
            is too long.
        TooLargeError: too many token ids or keys.
    """
    check_lease(request.lease_ms)
    if bool(request.token_ids) == bool(request.keys):
        raise InvalidArgumentError(
            "token_ids and keys are both " + ("set" if request.keys else "empty"),
            field="token_ids",
            limit="one of token_ids and keys",
        )
    check_count(request.token_ids, limits.PROMPT_TOKENS_MAX, "token_ids", low=0)
    check_count(request.keys, limits.LOOKUP_BLOCKS_MAX, "keys", low=0)
    for index, key in enumerate(request.keys):
        check_key(key, f"keys[{index}]")


def check_get(request: cache_pb2.GetRequest) -> None:
    """Check a read.

    Raises:
        InvalidArgumentError: no items, or a malformed one.
        TooLargeError: too many items.
    """
    check_count(request.items, limits.BATCH_ITEMS_MAX, "items")
    for index, item in enumerate(request.items):
        field = f"items[{index}]"
        check_block(item.block, f"{field}.block")
        check_range(item.part, 0, limits.PARTS_MAX - 1, f"{field}.part")
        check_range(item.frame_begin, 0, limits.PART_FRAMES_MAX - 1, f"{field}.frame_begin")
        if item.frame_end:
            low = item.frame_begin + 1
            check_range(item.frame_end, low, limits.PART_FRAMES_MAX, f"{field}.frame_end")


def check_put(request: cache_pb2.PutOpen, part_bytes_max: int) -> None:
    """Check what a store announces.

    Raises:
        InvalidArgumentError: no items, a malformed or doubled one, or an unknown condition.
        TooLargeError: too many items or frames, or a part above `part_bytes_max`.
    """
    check_count(request.items, limits.BATCH_ITEMS_MAX, "open.items")
    _check_writer(request.writer)
    if request.condition not in cache_pb2.PutCondition.values():
        raise InvalidArgumentError(
            f"condition is {request.condition}",
            field="open.condition",
            limit="a value of PutCondition",
        )
    if_group = request.condition == cache_pb2.PUT_CONDITION_IF_GROUP
    seen: set[tuple[bytes, int]] = set()
    for index, item in enumerate(request.items):
        field = f"open.items[{index}]"
        _check_put_item(item, field)
        _check_frames(item, part_bytes_max, field)
        if bool(item.if_group) != if_group:
            raise InvalidArgumentError(
                f"if_group is {item.if_group}",
                field=f"{field}.if_group",
                limit="set with the condition IF_GROUP, and only then",
            )
        seen.add((item.block.key, item.part))
        if len(seen) <= index:
            raise InvalidArgumentError(
                "two items are the same part of one block", field=field, limit="one item a part"
            )


def _check_writer(writer: str) -> None:
    if not 1 <= len(writer) <= limits.NAME_CHARS_MAX:
        raise InvalidArgumentError(
            f"writer has {len(writer)} characters",
            field="open.writer",
            limit=f"1 to {limits.NAME_CHARS_MAX} characters",
        )


def _check_put_item(item: cache_pb2.PutItem, field: str) -> None:
    check_block(item.block, f"{field}.block")
    check_key(item.parent, f"{field}.parent")
    check_range(item.index, 0, INDEX_MAX, f"{field}.index")
    check_range(item.parts, 1, limits.PARTS_MAX, f"{field}.parts")
    check_range(item.part, 0, item.parts - 1, f"{field}.part")


def check_replica(entry: replication_pb2.ReplicateEntry) -> None:
    """Check what a peer sends.

    Raises:
        InvalidArgumentError: a field is malformed, or a tombstone brings parts.
        TooLargeError: too many parts or frames, or a part above 64 MiB.
    """
    check_name(entry.tenant, "entries.tenant")
    check_name(entry.namespace, "entries.namespace")
    check_block(entry.block, "entries.block")
    check_range(entry.clock, 1, 2**63 - 1, "entries.clock")
    if entry.tombstone:
        check_count(entry.parts, 0, "entries.parts", low=0)
        return
    check_key(entry.fingerprint_digest, "entries.fingerprint_digest")
    check_key(entry.parent, "entries.parent")
    check_range(entry.index, 0, INDEX_MAX, "entries.index")
    check_count(entry.parts, limits.PARTS_MAX, "entries.parts")
    for index, part in enumerate(entry.parts):
        _check_frames(part, limits.PART_BYTES_MAX, f"entries.parts[{index}]")


def _check_frames(
    item: cache_pb2.PutItem | replication_pb2.ReplicatePart, part_bytes_max: int, field: str
) -> None:
    check_count(item.frame_sizes, limits.PART_FRAMES_MAX, f"{field}.frame_sizes")
    if len(item.frame_crc32c) != len(item.frame_sizes):
        raise InvalidArgumentError(
            f"{len(item.frame_crc32c)} checksums for {len(item.frame_sizes)} frames",
            field=f"{field}.frame_crc32c",
            limit="one for each frame",
        )
    if min(item.frame_sizes) < 1:
        raise InvalidArgumentError(
            "a frame has no bytes", field=f"{field}.frame_sizes", limit="at least 1 byte"
        )
    if sum(item.frame_sizes) > part_bytes_max:
        raise TooLargeError(
            f"the part has {sum(item.frame_sizes)} bytes",
            field=f"{field}.frame_sizes",
            limit=f"{part_bytes_max} bytes",
        )
