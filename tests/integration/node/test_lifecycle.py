"""A node's life: readiness, health, overload, drain, signals, and a node that cannot start."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from kvorum.core import errors
from kvorum.node import Node
from kvorum.node.clock import Clock
from kvorum.v1 import cache_pb2, cluster_pb2, frames
from tests.integration.node.conftest import Process, node_process
from tests.integration.node.rig import (
    CALL_S,
    MIB,
    Caller,
    config,
    local_file,
    part,
    put_frame,
    running,
)

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(caller: Caller) -> set[int]:
    """Return what the node says of itself and of two of its services."""
    stub: Any = health_pb2_grpc.HealthStub(caller.channel)
    names = ("", "kvorum.v1.CacheService", "kvorum.v1.ReplicationService")
    requests = [health_pb2.HealthCheckRequest(service=name) for name in names]
    return {int((await stub.Check(request, timeout=CALL_S)).status) for request in requests}


async def drain(caller: Caller, token: str) -> int:
    async with Caller(caller.address, token=token) as operator:
        answer = await operator.call(
            operator.cluster.DrainNode,
            cluster_pb2.DrainNodeRequest(context=operator.context, timeout_ms=100),
        )
        return int(answer.remaining_entries)


def test_reflection_tells_any_language_the_api(process: Process) -> None:
    with grpc.insecure_channel(process.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        assert services >= {
            "kvorum.v1.CacheService",
            "kvorum.v1.ClusterService",
            "kvorum.v1.NamespaceService",
            "kvorum.v1.ReplicationService",
            "grpc.health.v1.Health",
        }
        found = DescriptorPool(database).FindServiceByName("kvorum.v1.CacheService")
        assert {m.name for m in found.methods} >= {"Lookup", "Get", "Put"}


def test_generated_code_alone_can_store_and_read(process: Process, caller: Caller) -> None:
    """Goal: what travels is ordinary protobuf, whatever the node does to save copies."""
    one = part(b"ordinary")
    messages = [caller.opening([one]), put_frame((0, 0, 8), payload=one.data)]
    encoded = [cache_pb2.PutRequest.FromString(frames.encode(m)) for m in messages]
    with grpc.insecure_channel(process.address) as channel:
        put = channel.stream_unary(
            "/kvorum.v1.CacheService/Put",
            request_serializer=cache_pb2.PutRequest.SerializeToString,
            response_deserializer=cache_pb2.PutResponse.FromString,
        )
        assert put(iter(encoded), timeout=CALL_S).results[0].outcome == 1
        get = channel.unary_stream(
            "/kvorum.v1.CacheService/Get",
            request_serializer=cache_pb2.GetRequest.SerializeToString,
            response_deserializer=cache_pb2.GetResponse.FromString,
        )
        request = cache_pb2.GetRequest(
            context=caller.context,
            namespace=caller.namespace,
            items=[cache_pb2.GetItem(block=one.ref)],
        )
        [answer] = get(request, timeout=CALL_S)
        assert answer.payload == b"ordinary"


async def test_a_draining_node_serves_reads_and_refuses_stores() -> None:
    file = local_file()
    async with running(file) as [node], Caller(node.address) as caller:
        await caller.create()
        one = part(b"bytes")
        await caller.put([one])
        assert await health(caller) == {SERVING}
        assert await drain(caller, file.admin_token) == 0
        assert await drain(caller, file.admin_token) == 0, "draining twice changes nothing"
        assert await health(caller) == {NOT_SERVING}
        assert (await caller.status()).state == cluster_pb2.MEMBER_STATE_DRAINING
        for call in (caller.put([part(b"new")]), caller.on_blocks("Delete", [one])):
            with pytest.raises(errors.DrainingError) as caught:
                await call
            assert caught.value.retryable
        assert bytes((await caller.get_parts([one]))[0].data) == one.data
        assert (await caller.lookup([one.key])).present_blocks == 1


async def test_a_store_that_began_before_the_drain_goes_on() -> None:
    file = local_file()
    async with running(file) as [node], Caller(node.address) as caller:
        await caller.create()
        one = part(b"0123456789")
        call = frames.put_frames(caller.channel)(timeout=CALL_S)
        await call.write(caller.opening([one]))
        await call.write(put_frame((0, 0, 5), payload=b"01234"))
        while not (await caller.status()).staged_bytes:
            await asyncio.sleep(0.01)
        await drain(caller, file.admin_token)
        await call.write(put_frame((0, 5, 5), payload=b"56789"))
        await call.done_writing()
        assert [r.outcome for r in (await call).results] == [cache_pb2.PUT_OUTCOME_STORED]


async def test_more_stores_than_may_be_served_are_refused_at_once() -> None:
    """Method: one store stands still; the next is refused; when the first ends, there is room."""
    async with (
        running(local_file(), concurrent_puts_max=1) as [node],
        Caller(node.address) as caller,
    ):
        await caller.create()
        call = frames.put_frames(caller.channel)(timeout=CALL_S)
        await call.write(caller.opening([part(b"x")]))
        await until_inside(node, 1)
        with pytest.raises(errors.OverloadedError) as caught:
            await caller.put([part(b"y")])
        assert type(caught.value) is errors.OverloadedError
        assert (caught.value.field, caught.value.limit) == ("concurrent_puts_max", "1 at once")
        assert caught.value.retry_after_s
        assert (await caller.status()).counters["refused_puts"] == 1
        call.cancel()
        await until_inside(node, 0)
        assert (await caller.put([part(b"y")]))[0].outcome == cache_pb2.PUT_OUTCOME_STORED


async def test_more_reads_than_may_be_served_are_refused_at_once() -> None:
    async with (
        running(local_file(), memory=64 * MIB, concurrent_gets_max=1) as [node],
        Caller(node.address) as caller,
    ):
        await caller.create()
        one = part(bytes(12 * MIB))
        await caller.put([one])
        request = cache_pb2.GetRequest(
            context=caller.context,
            namespace=caller.namespace,
            items=[cache_pb2.GetItem(block=one.ref)],
        )
        call = frames.get_frames(caller.channel)(request, timeout=CALL_S)
        await call.read()
        with pytest.raises(errors.OverloadedError) as caught:
            await caller.get_parts([one])
        assert caught.value.field == "concurrent_gets_max"
        while await call.read() is not grpc.aio.EOF:
            pass
        assert len((await caller.get_parts([one]))[0].data) == 12 * MIB


async def until_inside(node: Node, count: int) -> None:
    """Wait until so many stores are being served."""
    async with asyncio.timeout(CALL_S):
        while node._admission.puts.inside != count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_the_process(tmp_path: Path, number: signal.Signals) -> None:
    with node_process(tmp_path, flags=("--memory", "16MiB")) as process:
        assert process.end(number) == 0
        log = process.log.read_text()
        assert "node drains" in log
        assert "node ended" in log
        assert "Traceback" not in log


def test_a_second_signal_ends_a_drain(tmp_path: Path) -> None:
    """Method: the peer is stopped, so that passing on would take the minutes that it may take."""
    file = local_file(2)
    flags = ("--memory", "16MiB", "--drain-s", "300", "--down-after-s", "300")
    (tmp_path / "b").mkdir()
    with (
        node_process(tmp_path / "b", file, flags, name="kvorum-b-0") as peer,
        node_process(tmp_path, file, flags) as process,
    ):
        asyncio.run(_queue_something(process, peer))
        process.popen.send_signal(signal.SIGTERM)
        while "node drains" not in process.log.read_text():
            assert process.popen.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.popen.wait(0.3)
        assert process.end(signal.SIGTERM) == 0


async def _queue_something(process: Process, peer: Process) -> None:
    """Make a block that the peer lacks."""
    async with Caller(process.address) as caller, asyncio.timeout(CALL_S):
        await caller.create()
        while not all(p.connected for p in (await caller.status()).peers):
            await asyncio.sleep(0.02)
        peer.popen.send_signal(signal.SIGSTOP)
        assert (await caller.put([part(b"x")]))[0].outcome == cache_pb2.PUT_OUTCOME_STORED
        assert [p.lag_entries for p in (await caller.status()).peers] == [1]


async def test_an_address_that_is_taken_is_a_typed_error() -> None:
    file = local_file()
    with socket.create_server(("127.0.0.1", int(file.map.members[0].address.split(":")[1]))):
        node = Node(config(), file, Clock(), 1)
        with pytest.raises(errors.UnavailableError) as caught:
            await node.serve()
        assert caught.value.field == "listen"


async def test_a_node_that_is_no_member_is_a_typed_error() -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        Node(config("stranger"), local_file(), Clock(), 1)
    assert caught.value.field == "name"
