"""Bad input, streams: stores, connections and readers that break the protocol or vanish."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import grpc
import pytest

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.v1 import cache_pb2
from tests.integration.support.settling import eventually
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

KEY = b"k" * limits.KEY_BYTES
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends a reset


def no_opening(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Leave the opening out."""
    return messages[1:]


def two_openings(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Open twice."""
    return [messages[0], *messages]


def no_messages(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Send nothing at all."""
    return messages[:0]


def no_writer(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Say no writer."""
    messages[0].open.writer = ""
    return messages


def long_writer(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Say a writer that is too long."""
    messages[0].open.writer = "w" * 129
    return messages


def no_items(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Announce nothing."""
    del messages[0].open.items[:]
    return messages


def same_item_twice(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Announce one part twice."""
    messages[0].open.items.append(messages[0].open.items[0])
    return messages


def unknown_condition(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Ask for a condition of a later version."""
    messages[0].open.condition = cache_pb2.PutCondition.ValueType(99)
    return messages


def another_version(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Speak another version."""
    messages[0].open.context.protocol_version = 9
    return messages


def unknown_item(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Send bytes of an item that was not announced."""
    messages[1].chunks[0].item = 5
    return messages


def gap(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Leave a byte out."""
    messages[1].chunks[0].offset = 1
    return messages


def length_lies(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Say another length than the payload has."""
    messages[1].chunks[0].length = 99
    return messages


def length_is_huge(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Say a length that would overflow."""
    messages[1].chunks[0].length = 2**32 - 1
    return messages


def payload_too_large(messages: list[cache_pb2.PutRequest]) -> list[cache_pb2.PutRequest]:
    """Send a message with more than 1 MiB of payload."""
    messages[0].open.items[0].frame_sizes[:] = [2 << 20]
    messages[1].payload = bytes(2 << 20)
    messages[1].chunks[0].length = 2 << 20
    return messages


Break = Callable[[list[cache_pb2.PutRequest]], list[cache_pb2.PutRequest]]
BREAKS: list[tuple[Break, str]] = [
    (no_opening, "open"),
    (two_openings, "open"),
    (no_messages, "open"),
    (no_writer, "writer"),
    (long_writer, "writer"),
    (no_items, "items"),
    (same_item_twice, "items"),
    (unknown_condition, "condition"),
    (another_version, "protocol_version"),
    (unknown_item, "chunks"),
    (gap, "offset"),
    (length_lies, "chunks"),
    (length_is_huge, "chunks"),
    (payload_too_large, "payload"),
]


@pytest.mark.parametrize(("broken", "field"), BREAKS)
def test_bad_streams(wire: Wire, scope: Scope, broken: Break, field: str) -> None:
    """Goal: a store that breaks the protocol is refused by type, and stores nothing."""
    messages = broken(list(put_messages(scope, [Block(KEY, b"x" * 100)])))
    error = wire.refusal_of(iter(messages))
    assert field in error.field
    assert error.limit
    assert wire.lookup(scope, [KEY]).present_blocks == 0


def test_more_bytes_than_announced(wire: Wire, scope: Scope) -> None:
    """Goal: a surplus is no part of a block. Method: send the last chunk twice.

    The block was whole before the surplus came, so it may stay, as it was announced.
    """
    block = Block(KEY, b"x" * 100)
    messages = list(put_messages(scope, [block]))
    try:
        wire.send(iter([*messages, messages[1]]))
    except InvalidArgumentError as error:
        assert "chunks" in error.field  # noqa: PT017  # both answers are right
    assert bytes(wire.get_blocks(scope, [block])[0].data) in (block.payload, b"")
    wire.delete(scope, [block])


@pytest.mark.usefixtures("scope")
@pytest.mark.parametrize("method", ["Lookup", "Get", "Delete", "Touch", "Pin", "Unpin", "Stat"])
@pytest.mark.parametrize("data", [b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", b"\x7b" * 3])
def test_bytes_that_are_no_message(wire: Wire, method: str, data: bytes) -> None:
    """Goal: bytes that do not parse are a typed error. Method: send them as a request."""
    call: grpc.UnaryStreamMultiCallable[bytes, bytes] = wire.channel.unary_stream(
        f"/kvorum.v1.CacheService/{method}"
    )
    with pytest.raises(InvalidArgumentError), typed(wire.address):
        list(call(data, timeout=CALL_S))


def test_bytes_that_are_no_message_in_a_stream(wire: Wire, scope: Scope) -> None:
    """Goal: the same in the middle of a store. Method: an opening, then garbage."""
    opening = next(put_messages(scope, [Block(KEY, b"x" * 100)])).SerializeToString()
    call: grpc.StreamUnaryMultiCallable[bytes, bytes] = wire.channel.stream_unary(
        "/kvorum.v1.CacheService/Put"
    )
    for garbage in (b"\xff" * 40, b"\x7a\xff\xff\xff\xff\x0f", b"\x7a\x05ab"):
        with pytest.raises(InvalidArgumentError), typed(wire.address):
            call(iter([opening, garbage]), timeout=CALL_S)
    assert wire.lookup(scope, [KEY]).present_blocks == 0


@pytest.mark.usefixtures("scope")
def test_a_message_that_is_too_large(wire: Wire) -> None:
    """Goal: a message over the limit is refused before it is read. Method: 32 MiB in one."""
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = wire.channel.unary_unary(
        "/kvorum.v1.CacheService/Lookup"
    )
    with pytest.raises(TooLargeError), typed(wire.address):
        call(bytes(32 << 20), timeout=CALL_S)


@pytest.mark.usefixtures("scope")
def test_an_unknown_method(wire: Wire) -> None:
    """Goal: a call of a later version is answered as gRPC has it."""
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = wire.channel.unary_unary(
        "/kvorum.v1.CacheService/Later"
    )
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=CALL_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    b"\x00" * 4096,
    PREFACE,
    PREFACE + b"\xff" * 300,
    PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\xff\xff\x00\x00\x00\x00\x00\x01",
    b"*1\r\n$4\r\nPING\r\n",
]


@pytest.mark.usefixtures("scope")
@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_on_the_port(wire: Wire, garbage: bytes) -> None:
    """Goal: other protocols and noise on the port harm nobody.

    Method: send it on raw sockets, half of which then end in a reset; the fixture checks that the
    node goes on.
    """
    host, _, port = wire.address.rpartition(":")
    for reset in (False, True):
        with socket.create_connection((host, int(port)), timeout=CALL_S) as raw:
            if reset:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            raw.sendall(garbage)


def test_a_client_that_vanishes_while_it_reads(wire: Wire, scope: Scope, seed: int) -> None:
    """Goal: a reader that goes away at any byte costs nothing that stays.

    Method: begin reads of 6 MiB and cancel them after some messages; then the block is deleted,
    and its memory is free.
    """
    used = wire.status().used_bytes
    block = Block(draw_bytes(64, seed), draw_bytes(6 << 20, seed))
    wire.put(scope, [block])
    for messages in (0, 1, 2, 4):
        with Wire(wire.address) as reader:
            request = cache_pb2.GetRequest(
                context=request_context(),
                namespace=scope.ref,
                items=[cache_pb2.GetItem(block=block.ref)],
            )
            call = reader.cache.Get(request, timeout=CALL_S)
            for _ in range(messages):
                assert next(call).payload
            call.cancel()
    assert wire.delete(scope, [block]) == [1]
    eventually(lambda: wire.status().used_bytes, "memory", holds=lambda now: now == used)
