"""Raw frames: messages with bulk payload, read and written without protobuf's copies.

A message that carries tensor bytes (`GetResponse`, `PutRequest`, `ReplicateRequest`) has the
payload as its last field. What travels is an ordinary protobuf message, so that every language
can speak it with generated code; this module writes it with one copy (header and payload joined)
and reads it with none (the payload is a view of what gRPC received). Through protobuf itself the
same transfer measured 0.2-0.7 GB/s against 1.1-1.4.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from kvorum.v1 import cache_pb2, replication_pb2

Head = TypeVar("Head", bound=Message)

PAYLOAD_FIELD: Final = 15
_PAYLOAD_TAG: Final = PAYLOAD_FIELD << 3 | 2  # one byte, because the field number is below 16
_VARINT_BYTES_MAX: Final = 10
_VARINT32_BYTES_MAX: Final = 5  # of a tag and of a length
_EMPTY: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class Frame(Generic[Head]):
    """One message, with its payload apart.

    Attributes:
        head: the message without its payload.
        payload: the payload as a view (received), or as the pieces to be joined (sent).
    """

    head: Head
    payload: memoryview = _EMPTY
    pieces: Sequence[memoryview] = ()


def encode(frame: Frame[Head]) -> bytes:
    """Return the wire bytes of `frame`; one copy of the payload.

    Used as a gRPC serializer.
    """
    pieces = frame.pieces or ((frame.payload,) if frame.payload.nbytes else ())
    length = sum(piece.nbytes for piece in pieces)
    head = frame.head.SerializeToString()
    if not length:
        return head
    return b"".join((head, bytes((_PAYLOAD_TAG,)), _varint(length), *pieces))


def decoder(message: type[Head]) -> Callable[[bytes], Frame[Head]]:
    """Return a gRPC deserializer for frames whose head is `message`."""

    def decode(data: bytes) -> Frame[Head]:
        """Take `data` apart; the payload is a view of it.

        Raises:
            DecodeError: the bytes are not such a message.
        """
        start, begin, end = _find_payload(data)
        if start < 0:
            return Frame(message.FromString(data))
        head = data[:start] if end == len(data) else data[:start] + data[end:]
        return Frame(message.FromString(head), memoryview(data)[begin:end])

    return decode


decode_get_response = decoder(cache_pb2.GetResponse)
decode_put_request = decoder(cache_pb2.PutRequest)
decode_replicate_request = decoder(replication_pb2.ReplicateRequest)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int, bytes_max: int) -> tuple[int, int]:
    """Return (value, position behind it)."""
    value = 0
    for count in range(bytes_max):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at
    raise DecodeError("a varint is cut short or too long")


def _find_payload(data: bytes) -> tuple[int, int, int]:
    """Return (start of the payload field, start of its bytes, end), or start -1 if there is none.

    Only top-level fields are walked, so the cost does not grow with the payload. protobuf would let
    the last of several payloads win; no honest writer sends two, so they are refused.
    """
    found = (-1, 0, 0)
    at = 0
    while at < len(data):
        start = at
        tag, begin = _read_varint(data, at, _VARINT32_BYTES_MAX)
        at = _skip(data, tag, begin)
        if tag == _PAYLOAD_TAG:
            if found[0] >= 0:
                raise DecodeError("a message has two payloads")
            _, begin = _read_varint(data, begin, _VARINT32_BYTES_MAX)
            found = start, begin, at
    return found


def _skip(data: bytes, tag: int, at: int) -> int:
    """Return the position behind the field whose value begins at `at`."""
    match tag & 7:
        case 0:
            _, at = _read_varint(data, at, _VARINT_BYTES_MAX)
        case 1:
            at += 8
        case 2:
            length, at = _read_varint(data, at, _VARINT32_BYTES_MAX)
            at += length
        case 5:
            at += 4
        case _:
            raise DecodeError("a field has an unknown wire type")
    if at > len(data):
        raise DecodeError("a field is longer than its message")
    return at


# Get and Replicate write to the call's context, so that they end with the call, whoever ends it: a
# generator would wait for the garbage collector when its client vanishes.
GetHandler: TypeAlias = "Callable[[cache_pb2.GetRequest, Any], Awaitable[None]]"
PutHandler: TypeAlias = (
    "Callable[[AsyncIterator[Frame[cache_pb2.PutRequest]], Any], Awaitable[cache_pb2.PutResponse]]"
)
ReplicateHandler: TypeAlias = (
    "Callable[[AsyncIterator[Frame[replication_pb2.ReplicateRequest]], Any], Awaitable[None]]"
)


class _GenericOnly:
    """A server that takes generic handlers alone; see `generic_only`."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Let go of them: each is a generic handler, too."""


def generic_only(server: grpc.aio.Server) -> grpc.aio.Server:
    """Return `server` such that generated `add_..._to_server` functions add generic handlers only.

    They register each method a second time, and gRPC prefers that one; of generic handlers the
    first wins, so that the functions below can go before the generated ones. A call also costs
    less: for each one, gRPC waits on every registered method.
    """
    return cast("grpc.aio.Server", _GenericOnly(server))


def serve_cache_frames(server: grpc.aio.Server, get: GetHandler, put: PutHandler) -> None:
    """Serve `CacheService.Get` and `.Put` as frames.

    Call it before the generated `add_CacheServiceServicer_to_server`, both with `generic_only`.
    """
    handlers = {
        "Get": grpc.unary_stream_rpc_method_handler(
            get,
            request_deserializer=cache_pb2.GetRequest.FromString,
            response_serializer=encode,
        ),
        "Put": grpc.stream_unary_rpc_method_handler(
            put,
            request_deserializer=decode_put_request,
            response_serializer=cache_pb2.PutResponse.SerializeToString,
        ),
    }
    _serve(server, "kvorum.v1.CacheService", handlers)


def serve_replication_frames(server: grpc.aio.Server, replicate: ReplicateHandler) -> None:
    """Serve `ReplicationService.Replicate` as frames; see `serve_cache_frames`."""
    handler = grpc.stream_stream_rpc_method_handler(
        replicate,
        request_deserializer=decode_replicate_request,
        response_serializer=replication_pb2.ReplicateResponse.SerializeToString,
    )
    _serve(server, "kvorum.v1.ReplicationService", {"Replicate": handler})


def _serve(server: grpc.aio.Server, service: str, handlers: dict[str, Any]) -> None:
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


def get_frames(channel: grpc.aio.Channel) -> grpc.aio.UnaryStreamMultiCallable[Any, Any]:
    """Return the stub of `CacheService.Get`: GetRequest in, `Frame[GetResponse]` out."""
    return channel.unary_stream(
        "/kvorum.v1.CacheService/Get",
        request_serializer=cache_pb2.GetRequest.SerializeToString,
        response_deserializer=decode_get_response,
    )


def put_frames(channel: grpc.aio.Channel) -> grpc.aio.StreamUnaryMultiCallable[Any, Any]:
    """Return the stub of `CacheService.Put`: `Frame[PutRequest]` in, PutResponse out."""
    return channel.stream_unary(
        "/kvorum.v1.CacheService/Put",
        request_serializer=encode,
        response_deserializer=cache_pb2.PutResponse.FromString,
    )


def replicate_frames(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamMultiCallable[Any, Any]:
    """Return the stub of `Replicate`: `Frame[ReplicateRequest]` in, ReplicateResponse out."""
    return channel.stream_stream(
        "/kvorum.v1.ReplicationService/Replicate",
        request_serializer=encode,
        response_deserializer=replication_pb2.ReplicateResponse.FromString,
    )
