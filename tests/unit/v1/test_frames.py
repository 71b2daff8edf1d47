"""Raw frames are ordinary protobuf messages, in both directions, and never a wrong slice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.v1 import cache_pb2, cache_pb2_grpc, common_pb2, frames, replication_pb2
from kvorum.v1.frames import Frame, encode

Whole: TypeAlias = cache_pb2.GetResponse | cache_pb2.PutRequest | replication_pb2.ReplicateRequest
DECODE: dict[type[Whole], Callable[[bytes], Frame[Any]]] = {
    cache_pb2.GetResponse: frames.decode_get_response,
    cache_pb2.PutRequest: frames.decode_put_request,
    replication_pb2.ReplicateRequest: frames.decode_replicate_request,
}
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SIZES = st.lists(U32, max_size=3)
CONTEXT = st.builds(
    common_pb2.RequestContext, protocol_version=U32, map_digest=st.binary(), incarnation=U64
)
BLOCK = st.builds(common_pb2.BlockRef, key=st.binary(max_size=64), slot=U32)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=3)


HEADS: dict[type[Whole], st.SearchStrategy[Any]] = {
    cache_pb2.GetResponse: st.builds(
        cache_pb2.GetResponse,
        chunks=some(
            st.builds(
                cache_pb2.GetChunk,
                item=U32,
                offset=U64,
                length=U32,
                header=st.none()
                | st.builds(
                    cache_pb2.ItemHeader,
                    miss=st.integers(0, 11),
                    frame_sizes=SIZES,
                    frame_crc32c=SIZES,
                    group=U64,
                ),
            )
        ),
    ),
    cache_pb2.PutRequest: st.builds(
        cache_pb2.PutRequest,
        open=st.none()
        | st.builds(
            cache_pb2.PutOpen,
            context=CONTEXT,
            items=some(st.builds(cache_pb2.PutItem, block=BLOCK, frame_crc32c=SIZES)),
            writer=TEXT,
        ),
        chunks=some(st.builds(cache_pb2.PutChunk, item=U32, offset=U64, length=U32)),
    ),
    replication_pb2.ReplicateRequest: st.builds(
        replication_pb2.ReplicateRequest,
        entries=some(
            st.builds(replication_pb2.ReplicateEntry, sequence=U64, tenant=TEXT, block=BLOCK)
        ),
        chunks=some(st.builds(replication_pb2.ReplicateChunk, sequence=U64, length=U32)),
    ),
}


@st.composite
def messages(draw: st.DrawFn) -> Whole:
    """A whole message of one of the three kinds, with or without a payload."""
    message: Whole = draw(HEADS[draw(st.sampled_from(list(HEADS)))])
    message.payload = draw(st.binary(max_size=300))
    return message


def apart(message: Whole) -> tuple[Whole, bytes]:
    """(message without its payload, payload), by protobuf alone."""
    head = type(message).FromString(message.SerializeToString())
    head.ClearField("payload")
    return head, message.payload


def check_against_protobuf(kind: type[Whole], data: bytes) -> None:
    """Decoding gives what protobuf gives, or a DecodeError, and nothing else."""
    try:
        frame = DECODE[kind](data)
    except DecodeError:
        return
    head, payload = apart(kind.FromString(data))
    assert frame.head == head
    assert frame.payload == payload
    assert not frame.pieces


# ---------------------------------------------------------------- agreement with protobuf


@given(messages(), st.lists(st.integers(0, 300), max_size=4))
def test_a_frame_is_written_as_protobuf_writes_the_message(message: Whole, cuts: list[int]) -> None:
    head, payload = apart(message)
    view = memoryview(payload)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(payload)), len(payload)]
    pieces = [view[a:b] for a, b in pairwise(edges)]
    whole = message.SerializeToString()
    assert encode(Frame(head, view)) == whole
    assert encode(Frame(head, pieces=pieces)) == whole


@given(messages())
def test_what_protobuf_wrote_is_read_and_the_payload_is_a_view(message: Whole) -> None:
    head, payload = apart(message)
    data = message.SerializeToString()
    frame = DECODE[type(message)](data)
    assert frame.head == head
    assert frame.payload == payload
    assert frame.payload.obj is data or not payload
    assert encode(frame) == data


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2**20, 2**21])
def test_every_length_of_the_length_is_written_as_protobuf_writes_it(size: int) -> None:
    payload = bytes(size)
    frame = Frame(cache_pb2.GetResponse(), memoryview(payload))
    assert encode(frame) == cache_pb2.GetResponse(payload=payload).SerializeToString()
    assert frames.decode_get_response(encode(frame)).payload == payload


def test_the_payload_is_the_last_field_of_every_message() -> None:
    for kind in DECODE:
        numbers = {field.name: field.number for field in kind.DESCRIPTOR.fields}
        assert numbers["payload"] == max(numbers.values()) == frames.PAYLOAD_FIELD


@given(messages())
def test_a_payload_that_comes_first_is_found_too(message: Whole) -> None:
    head, payload = apart(message)
    data = type(message)(payload=payload).SerializeToString() + head.SerializeToString()
    frame = DECODE[type(message)](data)
    assert frame.head == head
    assert frame.payload == payload


# ---------------------------------------------------------------- garbage


@settings(max_examples=300)
@given(st.sampled_from(list(DECODE)), st.binary(max_size=60))
def test_random_bytes_decode_as_protobuf_says_or_not_at_all(kind: type[Whole], data: bytes) -> None:
    check_against_protobuf(kind, data)


FIELDS = st.tuples(
    st.integers(0, 40), st.integers(0, 7), st.binary(max_size=12), st.integers(0, 20)
).map(lambda f: bytes([f[0] << 3 & 0xFF | f[1], f[3]]) + f[2])


@settings(max_examples=300)
@given(st.sampled_from(list(DECODE)), st.lists(FIELDS, max_size=4).map(b"".join))
def test_nearly_valid_bytes_decode_as_protobuf_says_or_not_at_all(
    kind: type[Whole], data: bytes
) -> None:
    check_against_protobuf(kind, data)


@given(messages(), st.data())
def test_a_truncated_or_flipped_message_decodes_as_protobuf_says_or_not_at_all(
    message: Whole, draw: st.DataObject
) -> None:
    data = bytearray(message.SerializeToString())
    check_against_protobuf(type(message), bytes(data[: draw.draw(st.integers(0, len(data)))]))
    if data:
        data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
        check_against_protobuf(type(message), bytes(data))


@given(messages())
def test_every_cut_through_the_payload_is_an_error(message: Whole) -> None:
    """A payload cut short must never pass for a shorter one."""
    data, start = message.SerializeToString(), len(apart(message)[0].SerializeToString())
    for end in range(start + 1, len(data)):
        with pytest.raises(DecodeError):
            DECODE[type(message)](data[:end])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x7a\x01a\x7a\x01b", id="two payloads"),
        pytest.param(b"\x7a\x01a\x7a\x00", id="an empty second payload"),
        pytest.param(b"\x7a\x02a", id="payload cut short"),
        pytest.param(b"\x7a", id="no length"),
        pytest.param(b"\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", id="vast length"),
        pytest.param(b"\x7a" + b"\x80" * 11, id="endless varint"),
        pytest.param(b"\x7a\x81\x80\x80\x80\x80\x00a", id="padded length"),
        pytest.param(b"\xfa\x80\x80\x80\x80\x00\x01a", id="padded tag"),
        pytest.param(b"\x7b\x7c", id="group"),
        pytest.param(b"\x7e", id="wire type 6"),
        pytest.param(b"\x09\x01", id="fixed64 cut short"),
        pytest.param(b"\x0d\x01", id="fixed32 cut short"),
        pytest.param(b"\x00\x00", id="field 0"),
    ],
)
def test_what_no_honest_writer_sends_is_refused(data: bytes) -> None:
    for decode in DECODE.values():
        with pytest.raises(DecodeError):
            decode(data)


# ---------------------------------------------------------------- over gRPC


async def get(request: cache_pb2.GetRequest, context: Any) -> None:
    """Answer each item with its own key as bytes, in two pieces."""
    for index, item in enumerate(request.items):
        view = memoryview(item.block.key)
        head = cache_pb2.GetResponse(chunks=[cache_pb2.GetChunk(item=index, length=view.nbytes)])
        await context.write(Frame(head, pieces=(view[:3], view[3:])))


async def put(
    requests: AsyncIterator[Frame[cache_pb2.PutRequest]], _: Any
) -> cache_pb2.PutResponse:
    """Answer with the length of each payload as a group."""
    results = [cache_pb2.PutResult(group=frame.payload.nbytes) async for frame in requests]
    return cache_pb2.PutResponse(results=results)


async def stat(request: cache_pb2.StatRequest, _: Any) -> cache_pb2.StatResponse:
    """Answer with the number of blocks."""
    return cache_pb2.StatResponse(stats=[cache_pb2.BlockStat(size_bytes=len(request.blocks))])


async def replicate(
    requests: AsyncIterator[Frame[replication_pb2.ReplicateRequest]], context: Any
) -> None:
    """Acknowledge each payload's length."""
    async for frame in requests:
        await context.write(
            replication_pb2.ReplicateResponse(acknowledged_sequence=frame.payload.nbytes)
        )


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    methods = ("Lookup", "Delete", "Touch", "Pin", "Unpin")
    cache: Any = SimpleNamespace(Get=get, Put=put, Stat=stat, **dict.fromkeys(methods))
    generic = frames.generic_only(server)
    frames.serve_cache_frames(generic, get, put)
    frames.serve_replication_frames(generic, replicate)
    cache_pb2_grpc.add_CacheServiceServicer_to_server(cache, generic)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(None)


async def test_raw_and_generated_ends_understand_each_other(channel: grpc.aio.Channel) -> None:
    keys = [b"abcdef", b"", b"x" * 1000]
    request = cache_pb2.GetRequest(
        items=[cache_pb2.GetItem(block=common_pb2.BlockRef(key=key)) for key in keys]
    )
    stub = cache_pb2_grpc.CacheServiceStub(channel)
    raw = [frame async for frame in frames.get_frames(channel)(request, timeout=20)]
    assert [bytes(frame.payload) for frame in raw] == keys
    generated = [answer async for answer in stub.Get(request, timeout=20)]
    assert [answer.payload for answer in generated] == keys
    assert [answer.chunks for answer in generated] == [frame.head.chunks for frame in raw]

    async def sent() -> AsyncIterator[Frame[cache_pb2.PutRequest]]:
        for key in keys:
            yield Frame(cache_pb2.PutRequest(), memoryview(key))

    answer = await frames.put_frames(channel)(sent(), timeout=20)
    assert [result.group for result in answer.results] == [6, 0, 1000]
    plain = [cache_pb2.PutRequest(payload=key) for key in keys]
    assert (await stub.Put(iter(plain), timeout=20)) == answer

    async def entries() -> AsyncIterator[Frame[replication_pb2.ReplicateRequest]]:
        for key in keys:
            yield Frame(replication_pb2.ReplicateRequest(), memoryview(key))

    pipe = frames.replicate_frames(channel)(entries(), timeout=20)
    assert [ack.acknowledged_sequence async for ack in pipe] == [6, 0, 1000]


async def test_the_generated_handlers_serve_what_has_no_raw_one(channel: grpc.aio.Channel) -> None:
    request = cache_pb2.StatRequest(blocks=[common_pb2.BlockRef()] * 3)
    answer = await cache_pb2_grpc.CacheServiceStub(channel).Stat(request, timeout=20)
    assert answer.stats[0].size_bytes == 3


async def test_garbage_ends_the_call_and_not_the_server(channel: grpc.aio.Channel) -> None:
    call: Any = channel.stream_unary("/kvorum.v1.CacheService/Put")
    with pytest.raises(grpc.aio.AioRpcError):
        await call(iter([b"\x7a\x02a"]), timeout=20)
    answer = await call(iter([b"\x7a\x02ab"]), timeout=20)
    assert cache_pb2.PutResponse.FromString(answer).results[0].group == 2
