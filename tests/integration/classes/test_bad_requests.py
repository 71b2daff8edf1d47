"""Bad input, requests: every field is checked, the error names it, and the node goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message

from kvorum.core import limits
from kvorum.core.errors import (
    ChecksumError,
    InvalidArgumentError,
    KvorumError,
    NamespaceNotFoundError,
    ProtocolVersionError,
    TooLargeError,
)
from kvorum.v1 import cache_pb2, common_pb2
from tests.integration.support.values import draw_bytes
from tests.integration.support.wire import (
    CALL_S,
    Block,
    Scope,
    Wire,
    put_messages,
    request_context,
    typed,
)

MessageT = TypeVar("MessageT", bound=Message)

KEY = b"k" * limits.KEY_BYTES


def lookup_with(scope: Scope, fields: Mapping[str, object]) -> cache_pb2.LookupRequest:
    """Return a lookup that is right but for the given fields."""
    request = cache_pb2.LookupRequest(context=request_context(), namespace=scope.ref, keys=[KEY])
    return changed(request, fields)


def get_with(
    scope: Scope, item: Mapping[str, object], fields: Mapping[str, object]
) -> cache_pb2.GetRequest:
    """Return a get that is right but for the given fields, of its item or of itself."""
    one = changed(cache_pb2.GetItem(block=Block(KEY, b"").ref), item)
    request = cache_pb2.GetRequest(context=request_context(), namespace=scope.ref, items=[one])
    return changed(request, fields)


def changed(message: MessageT, fields: Mapping[str, object]) -> MessageT:
    """Set fields of a message, which is returned: scalars, messages or lists."""
    for field, value in fields.items():
        target: Any = getattr(message, field)
        if isinstance(value, list):
            del target[:]
            target.extend(value)
        elif isinstance(value, Message):
            target.CopyFrom(value)
        else:
            setattr(message, field, value)
    return message


REF = common_pb2.BlockRef(key=KEY, slot=1)
BAD_LOOKUPS: list[tuple[str, dict[str, object], type[KvorumError]]] = [
    ("keys", {"keys": [b"short"]}, InvalidArgumentError),
    ("keys", {"keys": [KEY + b"x"]}, InvalidArgumentError),
    ("keys", {"keys": [KEY] * (limits.LOOKUP_BLOCKS_MAX + 1)}, TooLargeError),
    ("token_ids", {"keys": []}, InvalidArgumentError),
    ("token_ids", {"token_ids": [1]}, InvalidArgumentError),
    ("token_ids", {"keys": [], "token_ids": [1] * (limits.PROMPT_TOKENS_MAX + 1)}, TooLargeError),
    ("lease_ms", {"lease_ms": 60_001}, InvalidArgumentError),
    ("protocol_version", {"context": common_pb2.RequestContext()}, ProtocolVersionError),
    (
        "protocol_version",
        {"context": common_pb2.RequestContext(protocol_version=2)},
        ProtocolVersionError,
    ),
    ("name", {"namespace": common_pb2.NamespaceRef()}, InvalidArgumentError),
    (
        "name",
        {"namespace": common_pb2.NamespaceRef(name="No Name!", fingerprint_digest=KEY)},
        InvalidArgumentError,
    ),
    (
        "name",
        {"namespace": common_pb2.NamespaceRef(name="n" * 129, fingerprint_digest=KEY)},
        TooLargeError,
    ),
    (
        "namespace",
        {"namespace": common_pb2.NamespaceRef(name="unknown", fingerprint_digest=KEY)},
        NamespaceNotFoundError,
    ),
]


@pytest.mark.parametrize(("field", "fields", "kind"), BAD_LOOKUPS)
def test_bad_lookups(
    wire: Wire, scope: Scope, field: str, fields: dict[str, object], kind: type[KvorumError]
) -> None:
    """Goal: every field of a lookup is checked. Method: one wrong field; the error names it."""
    with pytest.raises(kind) as caught, typed(wire.address):
        wire.cache.Lookup(lookup_with(scope, fields), timeout=CALL_S)
    assert field in caught.value.field
    assert caught.value.limit


BAD_GETS: list[tuple[str, dict[str, object], dict[str, object], type[KvorumError]]] = [
    ("items", {}, {"items": []}, InvalidArgumentError),
    ("items", {}, {"items": [cache_pb2.GetItem(block=REF)] * 1025}, TooLargeError),
    ("items[0].block.key", {"block": common_pb2.BlockRef(key=b"k")}, {}, InvalidArgumentError),
    (
        "items[0].block.slot",
        {"block": common_pb2.BlockRef(key=KEY, slot=limits.SLOTS)},
        {},
        InvalidArgumentError,
    ),
    ("items[0].part", {"part": limits.PARTS_MAX}, {}, InvalidArgumentError),
    ("items[0].frame_end", {"frame_begin": 3, "frame_end": 2}, {}, InvalidArgumentError),
    ("items[0].frame_begin", {"frame_begin": limits.PART_FRAMES_MAX}, {}, InvalidArgumentError),
]


@pytest.mark.parametrize(("field", "item", "fields", "kind"), BAD_GETS)
def test_bad_gets(
    wire: Wire,
    scope: Scope,
    field: str,
    item: dict[str, object],
    fields: dict[str, object],
    kind: type[KvorumError],
) -> None:
    """Goal: every field of a get is checked. Method: one wrong field; the error names it."""
    with pytest.raises(kind) as caught, typed(wire.address):
        list(wire.cache.Get(get_with(scope, item, fields), timeout=CALL_S))
    assert field in caught.value.field
    assert caught.value.limit


def test_a_layer_range_beyond_the_block(wire: Wire, scope: Scope, seed: int) -> None:
    """Goal: a range of layers that a block does not have is an error, not other bytes."""
    block = Block(draw_bytes(64, seed), draw_bytes(300, seed), frame_sizes=(100, 100, 100))
    wire.put(scope, [block])
    [middle] = wire.get(scope, [cache_pb2.GetItem(block=block.ref, frame_begin=1, frame_end=2)])
    assert bytes(middle.data) == block.payload[100:200]
    for begin, end in ((0, 4), (3, 4), (3, 0)):
        with pytest.raises(InvalidArgumentError) as caught:
            wire.get(scope, [cache_pb2.GetItem(block=block.ref, frame_begin=begin, frame_end=end)])
        assert "frame_" in caught.value.field


BAD_ITEMS: list[tuple[str, dict[str, object], type[KvorumError]]] = [
    ("block.key", {"block": common_pb2.BlockRef(key=b"k")}, InvalidArgumentError),
    ("block.slot", {"block": common_pb2.BlockRef(key=KEY, slot=1 << 20)}, InvalidArgumentError),
    ("parent", {"parent": b"p"}, InvalidArgumentError),
    ("index", {"index": 1 << 20}, InvalidArgumentError),
    ("part", {"part": 1}, InvalidArgumentError),
    ("parts", {"parts": 0}, InvalidArgumentError),
    ("parts", {"parts": 2}, KvorumError),
    ("parts", {"parts": limits.PARTS_MAX + 1}, InvalidArgumentError),
    ("frame_sizes", {"frame_sizes": []}, InvalidArgumentError),
    ("frame_sizes", {"frame_sizes": [0]}, InvalidArgumentError),
    ("frame_sizes", {"frame_sizes": [(64 << 20) + 1]}, TooLargeError),
    ("frame_sizes", {"frame_sizes": [2**32 - 1]}, TooLargeError),
    ("frame_sizes", {"frame_sizes": [1] * 1025, "frame_crc32c": [0] * 1025}, TooLargeError),
    ("frame_crc32c", {"frame_crc32c": []}, InvalidArgumentError),
    ("frame_crc32c", {"frame_crc32c": [1, 2]}, InvalidArgumentError),
    ("payload", {"frame_crc32c": [1]}, ChecksumError),
    ("if_group", {"if_group": 7}, InvalidArgumentError),
]


@pytest.mark.parametrize(("field", "fields", "kind"), BAD_ITEMS)
def test_bad_items(
    wire: Wire, scope: Scope, field: str, fields: dict[str, object], kind: type[KvorumError]
) -> None:
    """Goal: every field of what is stored is checked, and nothing of a bad item is visible."""
    messages = list(put_messages(scope, [Block(KEY, b"x" * 100)]))
    changed(messages[0].open.items[0], fields)
    error = wire.refusal_of(iter(messages))
    assert isinstance(error, kind)
    assert field in error.field
    assert wire.lookup(scope, [KEY]).present_blocks == 0
