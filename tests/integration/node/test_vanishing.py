"""Clients that stop, vanish or talk garbage: memory comes back, nothing torn is ever seen."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from kvorum.core.errors import DeadlineError
from kvorum.node import Node
from kvorum.v1 import cache_pb2, frames
from tests.integration.node.conftest import Process
from tests.integration.node.rig import (
    CALL_S,
    MIB,
    Caller,
    chunks,
    local_file,
    part,
    put_frame,
    running,
)

DATA = random.Random(11).randbytes(3 * MIB)
SIZE = 2 * MIB + 5


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `check` holds."""
    async with asyncio.timeout(CALL_S):
        while not await check():
            await asyncio.sleep(0.02)


async def holds_nothing(caller: Caller) -> bool:
    state = await caller.status()
    return state.staged_bytes == 0


@pytest.mark.parametrize("sent", [0, 1, 4_095, MIB - 1, MIB, MIB + 1, SIZE - 1])
async def test_a_writer_that_hangs_up_at_any_byte(caller: Caller, sent: int) -> None:
    """Goal: after a writer vanished its memory is back and the next store of the block succeeds.

    Method: send `sent` bytes, make sure that they arrived, then cancel the call.
    """
    one = part(DATA[:SIZE])
    other = Caller(caller.address)
    opened = caller.opening([one])

    async def messages() -> AsyncIterator[Any]:
        yield opened
        for message in chunks([part(one.data[:sent])], chunk_bytes=MIB):
            yield message
        await asyncio.Event().wait()

    call = frames.put_frames(other.channel)(messages(), timeout=CALL_S)
    if sent:

        async def arrived() -> bool:
            return (await caller.status()).staged_bytes > 0

        await eventually(arrived)
    call.cancel()
    await other.channel.close()
    await eventually(lambda: holds_nothing(caller))
    assert (await caller.lookup([one.key])).present_blocks == 0
    [stored] = await caller.put([one])
    assert stored.outcome == cache_pb2.PUT_OUTCOME_STORED
    assert bytes((await caller.get_parts([one]))[0].data) == one.data


@pytest.mark.parametrize("sent", [1, MIB, SIZE - 1])
async def test_a_writer_whose_connection_breaks(
    process: Process, caller: Caller, sent: int
) -> None:
    """Method: the writer speaks through a relay that drops both connections after some bytes."""
    one = part(DATA[:SIZE])
    async with relay(process.address) as (address, drop):
        other = Caller(address)
        opened = caller.opening([one])

        async def messages() -> AsyncIterator[Any]:
            yield opened
            for message in chunks([part(one.data[:sent])]):
                yield message
            await asyncio.Event().wait()

        call = frames.put_frames(other.channel)(messages(), timeout=CALL_S)

        async def arrived() -> bool:
            return (await caller.status()).staged_bytes > 0

        await eventually(arrived)
        drop()
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        await other.channel.close()
    await eventually(lambda: holds_nothing(caller))
    assert (await caller.lookup([one.key])).present_blocks == 0


async def begin_to_read(caller: Caller) -> Any:
    """Store a part of 16 MiB, read one frame of it, and return the call."""
    await caller.create()
    one = part(DATA[:MIB] * 16, sizes=(MIB,) * 16)
    await caller.put([one])
    request = cache_pb2.GetRequest(
        context=caller.context,
        namespace=caller.namespace,
        items=[cache_pb2.GetItem(block=one.ref)],
    )
    call = frames.get_frames(caller.channel)(request)
    await call.read()
    return call


async def no_open_reads(node: Node) -> bool:
    return node._driver.engine.status().open_reads == 0


async def test_a_reader_that_vanishes_holds_no_block() -> None:
    """Method: begin to read and stop; a grant is open. Hang up; it ends."""
    async with running(local_file(), memory=128 * MIB) as [node]:
        async with Caller(node.address) as caller:
            await begin_to_read(caller)
            assert not await no_open_reads(node)
        await eventually(lambda: no_open_reads(node))


async def test_a_store_that_is_too_slow_ends_at_its_deadline() -> None:
    """Goal: without a deadline of the caller's, the node's own ends the call; memory comes back."""
    async with running(local_file(), call_s_max=0.3) as [node], Caller(node.address) as caller:
        await caller.create()
        one = part(DATA[:1_000])

        async def messages() -> AsyncIterator[Any]:
            yield caller.opening([one])
            yield put_frame((0, 0, 500), payload=one.data[:500])
            await asyncio.Event().wait()

        call = frames.put_frames(caller.channel)(messages())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert type(caller.error(caught.value)) is DeadlineError
        assert node._driver.engine.status().open_writes == 0
        assert node._driver.engine.status().used_bytes == 0


async def test_a_reader_that_stops_reading_ends_at_the_deadline() -> None:
    """Goal: the grants of a reader that does nothing end, and when it reads on it is told so."""
    async with (
        running(local_file(), memory=128 * MIB, call_s_max=0.5) as [node],
        Caller(node.address) as caller,
    ):
        call = await begin_to_read(caller)
        await eventually(lambda: no_open_reads(node))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_all(call)
        assert type(caller.error(caught.value)) is DeadlineError


async def read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 10_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 5_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"",
    ],
    ids=["http", "zeros", "frames", "preface", "redis", "nothing"],
)
async def test_garbage_on_the_port(process: Process, caller: Caller, garbage: bytes) -> None:
    """Goal: bytes that are no gRPC hurt nobody, and neither does a TLS handshake."""
    host, port = process.address.split(":")
    connections = [socket.create_connection((host, int(port)), timeout=CALL_S) for _ in range(20)]
    for connection in connections:
        connection.sendall(garbage)
    assert not (await caller.lookup([part(b"").key])).present_blocks
    for connection in connections:
        connection.close()
    assert process.popen.poll() is None


async def test_a_tls_handshake_on_a_port_without_tls(process: Process, caller: Caller) -> None:
    host, port = process.address.split(":")
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection(host, int(port), ssl=context, server_hostname="x")
    assert not (await caller.lookup([part(b"").key])).present_blocks


async def test_a_full_arena_of_pinned_blocks() -> None:
    """Goal: what finds no room among pins and leases is refused by type, and room heals it."""
    async with running(local_file(), memory=16 * MIB) as [node], Caller(node.address) as local:
        await local.create()
        pinned = []
        one = part(DATA[:MIB])
        while (result := (await local.put([one]))[0]).outcome == cache_pb2.PUT_OUTCOME_STORED:
            pinned.append(one)
            await local.on_blocks("Touch", [one], lease_ms=60_000)
            one = part(DATA[:MIB])
        assert list((await local.on_blocks("Pin", pinned[:8])).misses) == [0] * 8
        assert 8 <= len(pinned) <= 16
        assert result.error.code == 15, "ARENA_FULL"
        assert result.error.retryable
        assert (await local.status()).staged_bytes == 0
        got = await local.get_parts(pinned)
        assert all(bytes(one.data) == DATA[:MIB] for one in got)
        await local.on_blocks("Delete", pinned[:4])
        [result] = await local.put([one])
        assert result.outcome == cache_pb2.PUT_OUTCOME_STORED


class relay:  # noqa: N801  # used as a function
    """A TCP relay to `target` that can drop everything at once."""

    def __init__(self, target: str) -> None:
        self._host, self._port = target.split(":")
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> tuple[str, Callable[[], None]]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}", self._drop

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._drop()

    def _drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port))
        self._writers += [writer, back]
        async with asyncio.TaskGroup() as group:
            group.create_task(_pass_on(reader, back))
            group.create_task(_pass_on(there, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return
    finally:
        writer.close()
