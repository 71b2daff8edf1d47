"""Errors survive the wire: as a detail, through a real call, and when gRPC alone answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc.aio import AioRpcError, Metadata
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.errors import (
    ERROR_BY_CODE,
    DeadlineError,
    ErrorCode,
    InternalError,
    InvalidArgumentError,
    KvorumError,
    ProtocolVersionError,
    UnauthenticatedError,
    UnavailableError,
)
from kvorum.v1 import common_pb2, status
from kvorum.v1.status import from_detail, from_rpc_error, to_detail

CLASSES = list(ERROR_BY_CODE.values())
ODD = "zu groß: \N{SNOWMAN} \0 \ud800" * 2000
ERRORS: dict[str, KvorumError] = {
    **{cls.__name__: cls("it broke", field="a.b", limit="3 bytes") for cls in CLASSES},
    "plain": InvalidArgumentError("it broke"),
    "later": UnavailableError("it broke", retry_after_s=0.25),
    "long": InvalidArgumentError("x" * 10**6, field="y" * 10**6, limit="z" * 10**6),
    "odd": InvalidArgumentError(ODD, field=ODD, limit=ODD),
    "base": KvorumError("it broke"),
}


def same(error: KvorumError, again: KvorumError) -> bool:
    return (type(error), vars(error)) == (type(again), vars(again))


# ---------------------------------------------------------------- details


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_survives_as_a_detail(cls: type[KvorumError]) -> None:
    for error in (
        cls("it broke"),
        cls("it broke", field="a.b", limit="3 bytes", retry_after_s=1.5),
    ):
        detail = common_pb2.ErrorDetail.FromString(to_detail(error).SerializeToString())
        assert same(error, from_detail(detail))
        assert (detail.code, detail.retryable) == (cls.code.value, cls.retryable)


@given(st.text(), st.text(), st.text(), st.none() | st.floats())
def test_any_error_becomes_a_detail_that_fits(
    message: str, field: str, limit: str, retry_after_s: float | None
) -> None:
    error = KvorumError(
        message * 100, field=field * 100, limit=limit * 100, retry_after_s=retry_after_s
    )
    detail = to_detail(error)
    assert len(detail.message.encode()) <= 1024
    assert len(detail.field.encode()) <= 256
    assert len(detail.limit.encode()) <= 256
    assert error.message.encode(errors="replace").decode().startswith(detail.message)


@pytest.mark.parametrize(
    ("retry_after_s", "expected"),
    [
        (None, 0), (0.0, 0), (-1.0, 0), (0.0014, 1), (2.5, 2500), (1e12, 2**32 - 1),
        (float("inf"), 2**32 - 1), (float("nan"), 0),
    ],
)  # fmt: skip
def test_a_hint_is_milliseconds_within_32_bits(retry_after_s: float | None, expected: int) -> None:
    assert to_detail(KvorumError("", retry_after_s=retry_after_s)).retry_after_ms == expected


@pytest.mark.parametrize("code", [0, 20, 10_000])
def test_a_code_of_a_later_version_is_internal(code: int) -> None:
    detail = common_pb2.ErrorDetail.FromString(b"\x08" + _varint(code) + b"\x12\x02hi")
    error = from_detail(detail)
    assert (type(error), error.message) == (InternalError, "hi")


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def test_every_code_has_a_status() -> None:
    assert set(status._STATUS) == set(ErrorCode)


# ---------------------------------------------------------------- calls


async def fail(request: bytes, context: Any) -> None:
    await status.abort(context, ERRORS[request.decode()])


@pytest.fixture
async def call() -> AsyncIterator[Any]:
    """Call the method whose request names the error that it ends with."""
    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler(
        "test.Fails", {"Fail": grpc.unary_unary_rpc_method_handler(fail)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel.unary_unary("/test.Fails/Fail")
    await server.stop(None)


async def failure(call: Any, request: bytes) -> AioRpcError:
    with pytest.raises(AioRpcError) as caught:
        await call(request, timeout=20)
    return caught.value


async def test_every_error_survives_a_call(call: Any) -> None:
    for name, error in ERRORS.items():
        raw = await failure(call, name.encode())
        again = from_rpc_error(raw, "node-1")
        if name in {"long", "odd"}:
            assert type(again) is type(error)
            assert len(again.message) > 200
            assert again.field
            assert again.limit
        elif name == "base":
            assert (type(again), again.message) == (InternalError, error.message)
        else:
            assert same(error, again), name
        assert raw.code() is status._STATUS[error.code]
        assert str(error)[:8] == (raw.details() or "")[:8]


async def test_any_client_finds_the_detail_where_grpc_puts_it(call: Any) -> None:
    raw = await failure(call, b"TooLargeError")
    (found,) = (v for k, v in raw.trailing_metadata() or () if k == "grpc-status-details-bin")
    assert isinstance(found, bytes)
    answer = status_pb2.Status.FromString(found)
    assert answer.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert answer.message == raw.details() == "it broke; field: a.b; limit: 3 bytes"
    detail = common_pb2.ErrorDetail()
    assert answer.details[0].Unpack(detail)
    assert detail == to_detail(ERRORS["TooLargeError"])


async def test_a_dead_node_and_a_stranger_are_typed(call: Any) -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        error = from_rpc_error(await failure(channel.unary_unary("/a/B"), b""), "node-1")
        assert type(error) is UnavailableError
        assert error.message.startswith("node-1: unavailable: ")
    raw = await failure(call, b"no such name")  # the handler itself breaks
    assert type(from_rpc_error(raw, "node-1")) is InternalError


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineError),
        (grpc.StatusCode.UNAUTHENTICATED, UnauthenticatedError),
        (grpc.StatusCode.UNIMPLEMENTED, ProtocolVersionError),
        (grpc.StatusCode.UNKNOWN, InternalError),
    ],
)
def test_a_bare_status_is_typed(code: grpc.StatusCode, cls: type[KvorumError]) -> None:
    error = from_rpc_error(AioRpcError(code, Metadata(), Metadata(), "why"), "node-1")
    assert type(error) is cls
    assert error.message == f"node-1: {code.name.lower()}: why"


OTHER = any_pb2.Any()
OTHER.Pack(status_pb2.Status(code=3))


@pytest.mark.parametrize(
    "detail",
    [
        b"",
        b"\xff\xff garbage",
        status_pb2.Status(code=3).SerializeToString(),
        status_pb2.Status(code=3, details=[OTHER]).SerializeToString(),
        status_pb2.Status(
            details=[
                any_pb2.Any(type_url="type.googleapis.com/kvorum.v1.ErrorDetail", value=b"\xff")
            ]
        ).SerializeToString(),
    ],
    ids=["empty", "garbage", "none", "another", "broken"],
)
def test_a_detail_that_cannot_be_read_leaves_the_status(detail: bytes) -> None:
    metadata = Metadata(("grpc-status-details-bin", detail))
    raw = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), metadata, "why")
    assert type(from_rpc_error(raw, "node-1")) is UnavailableError
