"""Rig: nodes of a cluster in this process, and a caller that speaks raw frames with one of them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

import grpc.aio

from kvorum.cli.ports import free_ports
from kvorum.core import limits
from kvorum.core.checksum import frame_checksums
from kvorum.core.errors import KvorumError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import slot_of
from kvorum.node import Node, NodeConfig
from kvorum.node.clock import Clock
from kvorum.placement import SECRET_BYTES, ClusterFile
from kvorum.v1 import (
    cache_pb2,
    cache_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
    common_pb2,
    frames,
    namespace_pb2,
    namespace_pb2_grpc,
    replication_pb2_grpc,
    status,
)
from kvorum.v1.frames import Frame

CALL_S: Final = 20.0
MIB: Final = 1 << 20
ROOT: Final = b"\1" * limits.KEY_BYTES

OPAQUE: Final = Fingerprint(
    model="rig",
    weights_revision="1",
    tokenizer="rig",
    adapter="none",
    kv_dtype="uint8",
    layout="opaque",
    layers=1,
    kv_heads=1,
    head_size=1,
    rope="none",
    tp_size=1,
    pp_size=1,
    cp_size=1,
    block_tokens=16,
    codec_class="lossless",
)
TENSORS: Final = replace(
    OPAQUE, layout="LKHTD", kv_dtype="float16", layers=2, kv_heads=2, head_size=8
)


def local_file(zones: int = 1, shards: int = 1) -> ClusterFile:
    """Return the file of an open cluster on free loopback ports, with fresh secrets."""
    return ClusterFile.local(
        zones,
        shards,
        free_ports(zones * shards),
        key_secret=secrets.token_bytes(SECRET_BYTES),
        peer_token=secrets.token_urlsafe(32),
        admin_token=secrets.token_urlsafe(32),
    )


def config(name: str = "kvorum-a-0", **settings: Any) -> NodeConfig:
    """Return the settings of a small node."""
    return NodeConfig(
        **{"name": name, "memory": 16 * MIB, "heartbeat_s": 0.1, "down_after_s": 1.1, **settings}
    )


@asynccontextmanager
async def running(
    cluster: ClusterFile,
    names: Iterable[str] = ("kvorum-a-0",),
    *,
    incarnation: int = 1_000,
    **settings: Any,
) -> AsyncIterator[list[Node]]:
    """Serve nodes in this process until the end of the context."""
    nodes = [Node(config(name, **settings), cluster, Clock(), incarnation) for name in names]
    async with asyncio.TaskGroup() as group:
        for node in nodes:
            serving = asyncio.Event()
            group.create_task(node.serve(lambda *_, event=serving: event.set()))
            async with asyncio.timeout(CALL_S):
                await serving.wait()
        try:
            yield nodes
        finally:
            for node in nodes:
                node.stop()


@dataclass(frozen=True, slots=True)
class Part:
    """One part of one block, as a writer announces and sends it."""

    key: bytes
    data: bytes
    parent: bytes = ROOT
    index: int = 0
    part: int = 0
    parts: int = 1
    sizes: tuple[int, ...] = ()

    @property
    def ref(self) -> common_pb2.BlockRef:
        """The block's name, with the slot of a segment's first block."""
        return common_pb2.BlockRef(key=self.key, slot=slot_of(self.key))

    @property
    def item(self) -> cache_pb2.PutItem:
        """What announces it; one frame unless it has more."""
        sizes = self.sizes or (len(self.data),)
        return cache_pb2.PutItem(
            block=self.ref,
            parent=self.parent,
            index=self.index,
            part=self.part,
            parts=self.parts,
            frame_sizes=sizes,
            frame_crc32c=frame_checksums(memoryview(self.data), sizes),
        )


def part(data: bytes, **fields: Any) -> Part:
    """Return a block of its own with these bytes."""
    return Part(secrets.token_bytes(limits.KEY_BYTES), data, **fields)


@dataclass(slots=True)
class Got:
    """What came of one item of a get."""

    miss: int = 0
    group: int = 0
    sizes: tuple[int, ...] = ()
    checksums: tuple[int, ...] = ()
    data: bytearray = field(default_factory=bytearray)
    headers: int = 0


def chunks(parts: Sequence[Part], chunk_bytes: int = MIB) -> list[Frame[cache_pb2.PutRequest]]:
    """Return the messages that bring the bytes of `parts`, one chunk each."""
    out = []
    for number, one in enumerate(parts):
        for offset in range(0, len(one.data), chunk_bytes):
            run = one.data[offset : offset + chunk_bytes]
            out.append(put_frame((number, offset, len(run)), payload=run))
    return out


def put_frame(*runs: tuple[int, int, int], payload: bytes) -> Frame[cache_pb2.PutRequest]:
    """Return one message of a store: its chunks as (item, offset, length), and its payload."""
    head = cache_pb2.PutRequest(
        chunks=[cache_pb2.PutChunk(item=i, offset=o, length=n) for i, o, n in runs]
    )
    return Frame(head, memoryview(payload))


class Caller:
    """Speaks with one node; failed calls raise the typed error.

    Args:
        address: host:port of the node.
        token: bearer token, if any.
        digest: digest of the caller's map; empty for none.
        credentials: TLS credentials, if any.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        digest: bytes = b"",
        incarnation: int = 0,
        version: int = limits.PROTOCOL_VERSION,
        credentials: grpc.ChannelCredentials | None = None,
        options: Mapping[str, int] | None = None,
    ) -> None:
        self.address = address
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.context = common_pb2.RequestContext(
            protocol_version=version, map_digest=digest, incarnation=incarnation
        )
        self.namespace = common_pb2.NamespaceRef(name="ns", fingerprint_digest=OPAQUE.digest())
        merged = {
            "grpc.max_receive_message_length": 64 * MIB,
            "grpc.max_send_message_length": 64 * MIB,
            "grpc.use_local_subchannel_pool": 1,
            **(options or {}),
        }
        self.channel = (
            grpc.aio.insecure_channel(address, options=tuple(merged.items()))
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options=tuple(merged.items()))
        )
        self.cache = cache_pb2_grpc.CacheServiceStub(self.channel)
        self.namespaces = namespace_pb2_grpc.NamespaceServiceStub(self.channel)
        self.cluster = cluster_pb2_grpc.ClusterServiceStub(self.channel)
        self.replication = replication_pb2_grpc.ReplicationServiceStub(self.channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def call(self, stub: Any, request: Any, timeout: float | None = CALL_S) -> Any:
        """Make a unary call."""
        try:
            return await stub(request, timeout=timeout, metadata=self.metadata)
        except grpc.aio.AioRpcError as error:
            raise self.error(error) from error

    def error(self, error: grpc.aio.AioRpcError) -> KvorumError:
        """Return the typed error that a failed call carried."""
        return status.from_rpc_error(error, self.address)

    async def create(
        self, name: str = "ns", fingerprint: Fingerprint = OPAQUE, **policy: Any
    ) -> namespace_pb2.Namespace:
        """Make a namespace and use it from now on."""
        self.namespace = common_pb2.NamespaceRef(name=name, fingerprint_digest=fingerprint.digest())
        request = namespace_pb2.CreateNamespaceRequest(
            context=self.context,
            namespace=namespace_pb2.Namespace(
                name=name,
                fingerprint=namespace_pb2.Fingerprint(**asdict(fingerprint)),
                policy=namespace_pb2.NamespacePolicy(**policy),
            ),
        )
        made = await self.call(self.namespaces.CreateNamespace, request)
        namespace: namespace_pb2.Namespace = made.namespace
        return namespace

    def opening(
        self,
        parts: Sequence[Part],
        condition: cache_pb2.PutCondition.ValueType = cache_pb2.PUT_CONDITION_IF_ABSENT,
        writer: str = "rig",
    ) -> Frame[cache_pb2.PutRequest]:
        """Return the message that opens a store."""
        return Frame(
            cache_pb2.PutRequest(
                open=cache_pb2.PutOpen(
                    context=self.context,
                    namespace=self.namespace,
                    items=[one.item for one in parts],
                    condition=condition,
                    writer=writer,
                )
            )
        )

    async def put(self, parts: Sequence[Part], **opening: Any) -> list[cache_pb2.PutResult]:
        """Store parts."""
        return await self.send([self.opening(parts, **opening), *chunks(parts)])

    async def send(
        self, messages: Iterable[Frame[cache_pb2.PutRequest]]
    ) -> list[cache_pb2.PutResult]:
        """Send the messages of a store as they are."""
        call = frames.put_frames(self.channel)(
            iter(messages), timeout=CALL_S, metadata=self.metadata
        )
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            raise self.error(error) from error
        return list(answer.results)

    async def get(
        self, items: Sequence[cache_pb2.GetItem], lease: common_pb2.Lease | None = None
    ) -> list[Got]:
        """Read items; the bytes are not checked against their checksums."""
        request = cache_pb2.GetRequest(
            context=self.context, namespace=self.namespace, items=items, lease=lease
        )
        call = frames.get_frames(self.channel)(request, timeout=CALL_S, metadata=self.metadata)
        out = [Got() for _ in items]
        try:
            async for frame in call:
                assert frame.payload.nbytes <= limits.FRAME_BYTES
                _sort(frame, out)
        except grpc.aio.AioRpcError as error:
            raise self.error(error) from error
        return out

    async def get_parts(self, parts: Sequence[Part]) -> list[Got]:
        """Read parts whole."""
        return await self.get([cache_pb2.GetItem(block=p.ref, part=p.part) for p in parts])

    async def lookup(self, keys: Sequence[bytes], lease_ms: int = 0) -> cache_pb2.LookupResponse:
        """Look keys up."""
        request = cache_pb2.LookupRequest(
            context=self.context,
            namespace=self.namespace,
            keys=keys,
            lease_ms=lease_ms,
            describe=True,
        )
        answer: cache_pb2.LookupResponse = await self.call(self.cache.Lookup, request)
        return answer

    async def on_blocks(self, verb: str, parts: Sequence[Part], **fields: Any) -> Any:
        """Call Delete, Touch, Pin, Unpin or Stat."""
        request = getattr(cache_pb2, f"{verb}Request")(
            context=self.context,
            namespace=self.namespace,
            blocks=[one.ref for one in parts],
            **fields,
        )
        return await self.call(getattr(self.cache, verb), request)

    async def status(self) -> cluster_pb2.GetNodeStatusResponse:
        """Return the node's state."""
        request = cluster_pb2.GetNodeStatusRequest(context=self.context)
        answer: cluster_pb2.GetNodeStatusResponse = await self.call(
            self.cluster.GetNodeStatus, request
        )
        return answer


def _sort(frame: Frame[cache_pb2.GetResponse], out: list[Got]) -> None:
    """Put the bytes of one frame to the items that they belong to."""
    at = 0
    for chunk in frame.head.chunks:
        got = out[chunk.item]
        if chunk.HasField("header"):
            got.headers += 1
            got.miss, got.group = chunk.header.miss, chunk.header.group
            got.sizes = tuple(chunk.header.frame_sizes)
            got.checksums = tuple(chunk.header.frame_crc32c)
        if chunk.length:
            assert chunk.offset == len(got.data), f"item {chunk.item} has a gap"
        got.data += frame.payload[at : at + chunk.length]
        at += chunk.length
    assert at == frame.payload.nbytes
