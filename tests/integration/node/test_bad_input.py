"""Bad input: a typed error that names the field and the limit; the node goes on as before."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from kvorum.core import errors, limits
from kvorum.core.errors import KvorumError
from kvorum.v1 import cache_pb2, common_pb2, namespace_pb2
from tests.integration.node.rig import CALL_S, MIB, Caller, part

DATA = random.Random(10).randbytes(2 * MIB)
KEY = b"\2" * 64
Case = tuple[str, type[KvorumError], dict[str, Any]]


async def refused(caller: Caller, stub: Any, request: Any, kind: type[KvorumError]) -> KvorumError:
    """Make a call that must fail as `kind`, exactly; return the error."""
    with pytest.raises(KvorumError) as caught:
        await caller.call(stub, request)
    assert type(caught.value) is kind, caught.value
    return caught.value


def block(key: bytes = KEY, slot: int = 0) -> common_pb2.BlockRef:
    return common_pb2.BlockRef(key=key, slot=slot)


LOOKUPS: list[Case] = [
    ("token_ids", errors.InvalidArgumentError, {}),
    ("token_ids", errors.InvalidArgumentError, {"token_ids": [1], "keys": [KEY]}),
    ("keys[1]", errors.InvalidArgumentError, {"keys": [KEY, KEY[1:]]}),
    ("keys", errors.TooLargeError, {"keys": [KEY] * (limits.LOOKUP_BLOCKS_MAX + 1)}),
    ("token_ids", errors.TooLargeError, {"token_ids": [0] * (limits.PROMPT_TOKENS_MAX + 1)}),
    ("token_ids", errors.TooLargeError, {"token_ids": [0] * 16 * (limits.LOOKUP_BLOCKS_MAX + 1)}),
    ("lease_ms", errors.InvalidArgumentError, {"keys": [KEY], "lease_ms": 60_001}),
]


@pytest.mark.parametrize("case", range(len(LOOKUPS)))
async def test_lookups(caller: Caller, case: int) -> None:
    field, kind, fields = LOOKUPS[case]
    request = cache_pb2.LookupRequest(context=caller.context, namespace=caller.namespace, **fields)
    error = await refused(caller, caller.cache.Lookup, request, kind)
    assert (error.field, bool(error.limit)) == (field, True)


GETS: list[Case] = [
    ("items", errors.InvalidArgumentError, {}),
    ("items", errors.TooLargeError, {"items": [cache_pb2.GetItem(block=block())] * 1_025}),
    ("items[0].block.key", errors.InvalidArgumentError, {"items": [cache_pb2.GetItem()]}),
    (
        "items[0].block.slot",
        errors.InvalidArgumentError,
        {"items": [cache_pb2.GetItem(block=block(slot=limits.SLOTS))]},
    ),
    (
        "items[0].part",
        errors.InvalidArgumentError,
        {"items": [cache_pb2.GetItem(block=block(), part=limits.PARTS_MAX)]},
    ),
    (
        "items[0].frame_begin",
        errors.InvalidArgumentError,
        {"items": [cache_pb2.GetItem(block=block(), frame_begin=1_024)]},
    ),
    (
        "items[1].frame_end",
        errors.InvalidArgumentError,
        {
            "items": [
                cache_pb2.GetItem(block=block()),
                cache_pb2.GetItem(block=block(), frame_begin=2, frame_end=2),
            ]
        },
    ),
]


@pytest.mark.parametrize("case", range(len(GETS)))
async def test_gets(caller: Caller, case: int) -> None:
    field, kind, fields = GETS[case]
    request = cache_pb2.GetRequest(context=caller.context, namespace=caller.namespace, **fields)
    call = caller.cache.Get(request, timeout=CALL_S)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    error = caller.error(caught.value)
    assert type(error) is kind
    assert (error.field, bool(error.limit)) == (field, True)


async def test_a_range_beyond_the_part(caller: Caller) -> None:
    one = part(DATA[:100], sizes=(50, 50))
    await caller.put([one])
    with pytest.raises(errors.InvalidArgumentError) as caught:
        await caller.get([cache_pb2.GetItem(block=one.ref, frame_end=3)])
    assert (caught.value.field, caught.value.limit) == (
        "items[0].frame_end",
        "the part has 2 frames",
    )


ON_BLOCKS: list[Case] = [
    ("blocks", errors.InvalidArgumentError, {}),
    ("blocks", errors.TooLargeError, {"blocks": [block()] * 1_025}),
    ("blocks[1].key", errors.InvalidArgumentError, {"blocks": [block(), block(b"k")]}),
    ("blocks[0].slot", errors.InvalidArgumentError, {"blocks": [block(slot=limits.SLOTS)]}),
]


@pytest.mark.parametrize("verb", ["Delete", "Touch", "Pin", "Unpin", "Stat"])
@pytest.mark.parametrize("case", range(len(ON_BLOCKS)))
async def test_calls_on_blocks(caller: Caller, verb: str, case: int) -> None:
    field, kind, fields = ON_BLOCKS[case]
    request = getattr(cache_pb2, f"{verb}Request")(
        context=caller.context, namespace=caller.namespace, **fields
    )
    error = await refused(caller, getattr(caller.cache, verb), request, kind)
    assert (error.field, bool(error.limit)) == (field, True)


async def test_a_touch_with_a_lease_that_is_too_long(caller: Caller) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        await caller.on_blocks("Touch", [part(b"x")], lease_ms=60_001)
    assert caught.value.field == "lease_ms"


def _raw(caller: Caller, method: str, *, streams: bool) -> Any:
    """Return a stub that sends bytes as they are."""
    path = f"/kvorum.v1.{method}"
    build = caller.channel.stream_unary if streams else caller.channel.unary_unary
    return build(path, request_serializer=bytes, response_deserializer=bytes)


@pytest.mark.parametrize(
    "method",
    [
        "CacheService/Lookup",
        "CacheService/Get",
        "CacheService/Delete",
        "NamespaceService/CreateNamespace",
        "ClusterService/GetNodeStatus",
        "ReplicationService/Hello",
    ],
)
@pytest.mark.parametrize("garbage", [b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b"])
async def test_bytes_that_are_no_message(caller: Caller, method: str, garbage: bytes) -> None:
    stub = _raw(caller, method, streams=False)
    error = await refused(caller, stub, garbage, errors.InvalidArgumentError)
    assert error.field == "request"


@pytest.mark.parametrize("garbage", [b"\xff" * 50, b"\x7a\xff\xff\x7f", b"\x7a\x01a\x7a\x01b"])
@pytest.mark.parametrize("method", ["CacheService/Put", "ReplicationService/Replicate"])
async def test_bytes_in_a_stream_that_are_no_message(
    caller: Caller, method: str, garbage: bytes
) -> None:
    call = _raw(caller, method, streams=True)(iter([garbage]), timeout=CALL_S)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caller.error(caught.value)
    assert type(error) is errors.InvalidArgumentError
    assert error.field == "request"


async def test_a_message_above_the_limit_of_the_transport(caller: Caller) -> None:
    with pytest.raises(errors.TooLargeError):
        await caller.call(_raw(caller, "CacheService/Lookup", streams=False), bytes(9 * MIB))


async def test_methods_and_services_that_do_not_exist(caller: Caller) -> None:
    for method in ("CacheService/Steal", "NobodyService/Get"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw(caller, method, streams=False)(b"", timeout=CALL_S)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


NAMESPACES: dict[str, tuple[str, type[KvorumError], Callable[[Any], object]]] = {
    "no name": ("namespace.name", errors.InvalidArgumentError, lambda n: n.ClearField("name")),
    "a bad name": (
        "namespace.name",
        errors.InvalidArgumentError,
        lambda n: setattr(n, "name", "no spaces"),
    ),
    "a long name": (
        "namespace.name",
        errors.TooLargeError,
        lambda n: setattr(n, "name", "n" * 129),
    ),
    "no fingerprint": (
        "fingerprint.model",
        errors.FingerprintError,
        lambda n: n.ClearField("fingerprint"),
    ),
    "a missing field": (
        "fingerprint.tokenizer",
        errors.FingerprintError,
        lambda n: n.fingerprint.ClearField("tokenizer"),
    ),
    "an unknown dtype": (
        "fingerprint.kv_dtype",
        errors.FingerprintError,
        lambda n: setattr(n.fingerprint, "kv_dtype", "float64"),
    ),
    "an odd block size": (
        "fingerprint.block_tokens",
        errors.FingerprintError,
        lambda n: setattr(n.fingerprint, "block_tokens", 17),
    ),
    "more replicas than zones": (
        "policy.replicas",
        errors.InvalidArgumentError,
        lambda n: setattr(n.policy, "replicas", 2),
    ),
    "a tier of the future": (
        "policy.tier",
        errors.InvalidArgumentError,
        lambda n: n.policy.MergeFromString(b"\x08\x63"),
    ),
    "an endless quota": (
        "policy.quota_bytes",
        errors.InvalidArgumentError,
        lambda n: setattr(n.policy, "quota_bytes", 2**64 - 1),
    ),
}


@pytest.mark.parametrize("case", list(NAMESPACES))
async def test_namespaces(caller: Caller, case: str) -> None:
    field, kind, change = NAMESPACES[case]
    made = await caller.create(caller.namespace.name)
    made.name = "another"
    change(made)
    request = namespace_pb2.CreateNamespaceRequest(context=caller.context, namespace=made)
    error = await refused(caller, caller.namespaces.CreateNamespace, request, kind)
    assert error.field == field
