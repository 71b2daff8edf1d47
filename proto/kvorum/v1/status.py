"""The one table between Kvorum's errors and gRPC statuses, both ways.

A failed call carries its error as the detail of a `google.rpc.Status` in the trailing metadata
`grpc-status-details-bin`, so that clients in every language find it where they look for it.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from kvorum.core.errors import (
    ERROR_BY_CODE,
    DeadlineError,
    ErrorCode,
    InternalError,
    KvorumError,
    PermissionDeniedError,
    ProtocolVersionError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
)
from kvorum.v1 import common_pb2

DETAILS_KEY: Final = "grpc-status-details-bin"

# gRPC drops a call whose trailing metadata passes 8 KiB, and the error with it: what an error
# says is cut so that twice the message, percent-encoded and in base64, stays below.
_MESSAGE_BYTES_MAX: Final = 1_024
_FIELD_BYTES_MAX: Final = 256
_RETRY_AFTER_MS_MAX: Final = 2**32 - 1

_STATUS: Final[dict[ErrorCode, grpc.StatusCode]] = {
    ErrorCode.INTERNAL: grpc.StatusCode.INTERNAL,
    ErrorCode.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.FINGERPRINT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.CHECKSUM: grpc.StatusCode.DATA_LOSS,
    ErrorCode.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    ErrorCode.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.NAMESPACE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.NAMESPACE_CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.PROTOCOL_VERSION: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.MAP_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.NOT_OWNER: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.INCARNATION: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.OVERLOADED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.ARENA_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.QUOTA: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.DRAINING: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.DEADLINE: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorCode.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}

# What gRPC itself answers, without a detail of ours.
_BARE: Final[dict[grpc.StatusCode, type[KvorumError]]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooLargeError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.UNIMPLEMENTED: ProtocolVersionError,
}


def to_detail(error: KvorumError) -> common_pb2.ErrorDetail:
    """Return `error` as it travels."""
    return common_pb2.ErrorDetail(
        code=common_pb2.ErrorCode.ValueType(int(error.code)),
        message=_cut(error.message, _MESSAGE_BYTES_MAX),
        field=_cut(error.field, _FIELD_BYTES_MAX),
        limit=_cut(error.limit, _FIELD_BYTES_MAX),
        retryable=error.retryable,
        retry_after_ms=round(min(max(0.0, error.retry_after_s or 0.0) * 1000, _RETRY_AFTER_MS_MAX)),
    )


def _cut(text: str, bytes_max: int) -> str:
    """Return `text` as what fits into `bytes_max` bytes of UTF-8."""
    data = text.encode(errors="replace")
    return data[:bytes_max].decode(errors="ignore")


def from_detail(detail: common_pb2.ErrorDetail) -> KvorumError:
    """Return the error that travelled as `detail`; a code from a later version is internal."""
    known = {int(code) for code in ErrorCode}
    cls = ERROR_BY_CODE[ErrorCode(detail.code)] if detail.code in known else InternalError
    return cls(
        detail.message,
        field=detail.field,
        limit=detail.limit,
        retry_after_s=detail.retry_after_ms / 1000 if detail.retry_after_ms else None,
    )


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: KvorumError) -> NoReturn:
    """End a call with `error`."""
    code = _STATUS[error.code]
    packed = any_pb2.Any()
    packed.Pack(to_detail(error))
    number: int = code.value[0]
    text = _cut(str(error), _MESSAGE_BYTES_MAX)
    status = status_pb2.Status(code=number, message=text, details=[packed])
    context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
    await context.abort(code, text)
    raise AssertionError("abort returned")


def from_rpc_error(error: grpc.aio.AioRpcError, node: str) -> KvorumError:
    """Return the error that a failed call to `node` carried, or what its status stands for."""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            detail = _unpack(value)
            if detail is not None:
                return from_detail(detail)
    cls = _BARE.get(error.code(), InternalError)
    return cls(f"{node}: {error.code().name.lower()}: {error.details()}")


def _unpack(data: bytes) -> common_pb2.ErrorDetail | None:
    detail = common_pb2.ErrorDetail()
    try:
        status = status_pb2.Status.FromString(data)
        return detail if status.details and status.details[0].Unpack(detail) else None
    except DecodeError:
        return None
