"""Nodes in this process that can be told to lie, fail and hang.

It speaks the protocol over real gRPC and keeps blocks in a dictionary, so that a test can put any
answer before a client: what a broken node, a broken wire or an attacker might send. What real
nodes do is tested against real nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

import grpc.aio

from kvorum.core import limits
from kvorum.core.checksum import frame_checksums
from kvorum.core.errors import KvorumError, NamespaceNotFoundError
from kvorum.core.keys import blocks_per_segment, slot_of
from kvorum.placement import ClusterMap, Member
from kvorum.v1 import cache_pb2, cluster_pb2, common_pb2, namespace_pb2
from kvorum.v1.frames import Frame, encode
from kvorum.v1.status import abort, to_detail

Message: TypeAlias = "Frame[cache_pb2.GetResponse]"
Lie: TypeAlias = "Callable[[list[Message], int], Sequence[Message | bytes | float]]"
"""Changes the messages of an answer, given the index of the item to lie about.

Bytes are sent as they are, and a number is a pause in seconds.
"""

Context: TypeAlias = Any  # grpc's own type takes parameters that its stubs do not agree on

SALT: Final = bytes(range(32))
DIGEST: Final = b"d" * 32
CHUNK_BYTES: Final = 1_000
HANG: Final = b"hang"
"""Among the messages of a lie: from here on nothing comes."""


@dataclass(frozen=True)
class Stored:
    """A block as a node keeps it: the bytes of its one part, its frames and its group."""

    data: bytes
    frame_sizes: tuple[int, ...]
    group: int

    def header(self) -> cache_pb2.ItemHeader:
        """Return what a get says first."""
        sums = frame_checksums(memoryview(self.data), self.frame_sizes)
        return cache_pb2.ItemHeader(
            frame_sizes=self.frame_sizes, frame_crc32c=sums, group=self.group
        )


@dataclass
class Faults:
    """What a node does instead of answering.

    Attributes:
        errors: the error of each method that fails.
        hung: methods that never answer.
        delays_s: seconds that methods wait first.
        lie: changes the messages of every get that asks for `victim`.
        victim: key of the block to lie about.
        refuse: the error of each block of a store, by index of the item.
        stop_reading_after: messages after which a put answers without reading on.
        digest: the digest of a map that this node alone holds.
        name: the name under which it answers, if not its own.
    """

    errors: dict[str, KvorumError] = field(default_factory=dict)
    hung: set[str] = field(default_factory=set)
    delays_s: dict[str, float] = field(default_factory=dict)
    lie: Lie | None = None
    victim: bytes = b""
    refuse: dict[int, KvorumError] = field(default_factory=dict)
    stop_reading_after: int | None = None
    digest: bytes = DIGEST
    name: str = ""


@dataclass
class Cluster:
    """What all nodes have in common.

    Attributes:
        block_tokens: tokens a block of the namespaces here.
        map: members and slots.
        nodes: the nodes, by name.
        namespaces: the namespaces, by name.
    """

    block_tokens: int
    map: ClusterMap = field(init=False)
    nodes: dict[str, LyingNode] = field(default_factory=dict)
    namespaces: dict[str, namespace_pb2.Namespace] = field(default_factory=dict)


class LyingNode:
    """One node.

    Attributes:
        member: name, zone, shard and address.
        blocks: what it holds, by key.
        missing: why it does not hold a block, by key.
        faults: what it does instead of answering.
        calls: calls that came, by method.
        openings: what every put announced.
        metadata: the metadata of the last call.
        incarnation: its birth number.
    """

    def __init__(self, cluster: Cluster, member: Member) -> None:
        self.cluster = cluster
        self.member = member
        self.blocks: dict[bytes, Stored] = {}
        self.missing: dict[bytes, common_pb2.MissReason.ValueType] = {}
        self.faults = Faults()
        self.calls: Counter[str] = Counter()
        self.openings: list[cache_pb2.PutOpen] = []
        self.pinned: set[bytes] = set()
        self.metadata: dict[str, str | bytes] = {}
        self.incarnation = 7
        self.server: grpc.aio.Server | None = None

    def answerer(self) -> common_pb2.Answerer:
        """Return who answers."""
        return common_pb2.Answerer(
            node=self.faults.name or self.member.name,
            zone=self.member.zone,
            incarnation=self.incarnation,
        )

    async def enter(self, method: str, context: Context) -> None:
        """Count a call, and fail or hang if told to."""
        self.calls[method] += 1
        self.metadata = dict(context.invocation_metadata() or ())
        await asyncio.sleep(self.faults.delays_s.get(method, 0))
        if method in self.faults.hung:
            await asyncio.Event().wait()
        if method in self.faults.errors:
            await abort(context, self.faults.errors[method])

    def state(self, key: bytes) -> cache_pb2.BlockState:
        """Return a block as a lookup answers it."""
        block = self.blocks.get(key)
        if block is None:
            miss = self.missing.get(key, common_pb2.MISS_REASON_NEVER_STORED)
            return cache_pb2.BlockState(miss=miss, shard=self.member.shard)
        return cache_pb2.BlockState(
            shard=self.member.shard,
            size_bytes=len(block.data),
            parts=1,
            group=block.group,
        )

    def messages(self, items: Iterable[cache_pb2.GetItem]) -> list[Message]:
        """Return the honest answer to a get, in messages of one chunk each."""
        made: list[Message] = []
        for index, item in enumerate(items):
            block = self.blocks.get(item.block.key)
            if block is None or item.group not in (0, block.group):
                chunk = cache_pb2.GetChunk(item=index)
                chunk.header.miss = common_pb2.MISS_REASON_EVICTED
                made.append(Frame(cache_pb2.GetResponse(chunks=[chunk])))
                continue
            part = cut(block, item.frame_begin, item.frame_end)
            for at in range(0, len(part.data), CHUNK_BYTES):
                piece = part.data[at : at + CHUNK_BYTES]
                chunk = cache_pb2.GetChunk(item=index, offset=at, length=len(piece))
                if not at:
                    chunk.header.CopyFrom(part.header())
                made.append(Frame(cache_pb2.GetResponse(chunks=[chunk]), memoryview(piece)))
        return made


def cut(block: Stored, begin: int, end: int) -> Stored:
    """Return some of the frames of a block."""
    end = end or len(block.frame_sizes)
    start, stop = sum(block.frame_sizes[:begin]), sum(block.frame_sizes[:end])
    return Stored(block.data[start:stop], block.frame_sizes[begin:end], block.group)


class Blocks:
    """Calls about blocks, without payload."""

    def __init__(self, node: LyingNode) -> None:
        self.node = node

    async def lookup(
        self, request: cache_pb2.LookupRequest, context: Context
    ) -> cache_pb2.LookupResponse:
        await self.node.enter("Lookup", context)
        cluster = self.node.cluster
        size = blocks_per_segment(cluster.block_tokens)
        states = []
        for at, key in enumerate(request.keys):
            shard = cluster.map.shard_of(slot_of(request.keys[at - at % size]))
            ours = shard == self.node.member.shard
            states.append(self.node.state(key) if ours else cache_pb2.BlockState(shard=shard))
        lease = common_pb2.Lease(
            expires_unix_ms=1, duration_ms=request.lease_ms, incarnation=self.node.incarnation
        )
        return cache_pb2.LookupResponse(
            answerer=self.node.answerer(), blocks=states, lease=lease if request.lease_ms else None
        )

    async def delete(
        self, request: cache_pb2.DeleteRequest, context: Context
    ) -> cache_pb2.DeleteResponse:
        await self.node.enter("Delete", context)
        gone = [int(self.node.blocks.pop(b.key, None) is not None) for b in request.blocks]
        return cache_pb2.DeleteResponse(answerer=self.node.answerer(), deleted_blocks=gone)

    async def touch(
        self, request: cache_pb2.TouchRequest, context: Context
    ) -> cache_pb2.TouchResponse:
        await self.node.enter("Touch", context)
        return cache_pb2.TouchResponse(
            answerer=self.node.answerer(), misses=self._misses(request.blocks)
        )

    async def pin(self, request: cache_pb2.PinRequest, context: Context) -> cache_pb2.PinResponse:
        await self.node.enter("Pin", context)
        self.node.pinned |= {b.key for b in request.blocks if b.key in self.node.blocks}
        return cache_pb2.PinResponse(
            answerer=self.node.answerer(), misses=self._misses(request.blocks)
        )

    async def unpin(
        self, request: cache_pb2.UnpinRequest, context: Context
    ) -> cache_pb2.UnpinResponse:
        await self.node.enter("Unpin", context)
        self.node.pinned -= {b.key for b in request.blocks}
        return cache_pb2.UnpinResponse(
            answerer=self.node.answerer(), misses=self._misses(request.blocks)
        )

    async def stat(
        self, request: cache_pb2.StatRequest, context: Context
    ) -> cache_pb2.StatResponse:
        await self.node.enter("Stat", context)
        stats = []
        for ref in request.blocks:
            state = self.node.state(ref.key)
            stats.append(
                cache_pb2.BlockStat(
                    miss=state.miss, size_bytes=state.size_bytes, parts=1, group=state.group
                )
            )
        return cache_pb2.StatResponse(answerer=self.node.answerer(), stats=stats)

    def _misses(
        self, blocks: Iterable[common_pb2.BlockRef]
    ) -> list[common_pb2.MissReason.ValueType]:
        return [self.node.state(block.key).miss for block in blocks]


class Payload:
    """`Get` and `Put`, as raw messages, so that an answer need not be one."""

    def __init__(self, node: LyingNode) -> None:
        self.node = node

    async def get(self, request: cache_pb2.GetRequest, context: Context) -> AsyncIterator[bytes]:
        await self.node.enter("Get", context)
        messages: Sequence[Message | bytes | float] = self.node.messages(request.items)
        keys = [item.block.key for item in request.items]
        faults = self.node.faults
        if faults.lie is not None and faults.victim in keys:
            honest = self.node.messages(request.items)
            messages = faults.lie(honest, keys.index(faults.victim))
        for message in messages:
            if message == HANG:
                await asyncio.Event().wait()
            if isinstance(message, float):
                await asyncio.sleep(message)
            else:
                yield message if isinstance(message, bytes) else encode(message)

    async def put(
        self, requests: AsyncIterator[Frame[cache_pb2.PutRequest]], context: Context
    ) -> cache_pb2.PutResponse:
        await self.node.enter("Put", context)
        first = await anext(requests)
        opening = cache_pb2.PutOpen()
        opening.CopyFrom(first.head.open)
        self.node.openings.append(opening)
        got = [bytearray() for _ in opening.items]
        messages = 0
        async for frame in requests:
            messages += 1
            assert frame.payload.nbytes <= limits.FRAME_BYTES
            at = 0
            for chunk in frame.head.chunks:
                assert chunk.offset == len(got[chunk.item])
                got[chunk.item] += frame.payload[at : at + chunk.length]
                at += chunk.length
            assert at == frame.payload.nbytes
            if messages == self.node.faults.stop_reading_after:
                break
        results = [self._result(at, item, got[at]) for at, item in enumerate(opening.items)]
        return cache_pb2.PutResponse(answerer=self.node.answerer(), results=results)

    def _result(self, index: int, item: cache_pb2.PutItem, data: bytearray) -> cache_pb2.PutResult:
        zones = [self.node.member.zone]
        if index in self.node.faults.refuse:
            return cache_pb2.PutResult(
                outcome=cache_pb2.PUT_OUTCOME_REFUSED,
                error=to_detail(self.node.faults.refuse[index]),
            )
        if item.block.key in self.node.blocks:
            return cache_pb2.PutResult(
                outcome=cache_pb2.PUT_OUTCOME_ALREADY_STORED, group=1, zones=zones
            )
        sizes = tuple(item.frame_sizes)
        assert frame_checksums(memoryview(data), sizes) == tuple(item.frame_crc32c)
        self.node.blocks[item.block.key] = Stored(bytes(data), sizes, group=1 + item.index)
        return cache_pb2.PutResult(
            outcome=cache_pb2.PUT_OUTCOME_STORED, group=1 + item.index, zones=zones, replicas=2
        )


class State:
    """Topology and state."""

    def __init__(self, node: LyingNode) -> None:
        self.node = node

    async def get_topology(
        self, _: cluster_pb2.GetTopologyRequest, context: Context
    ) -> cluster_pb2.GetTopologyResponse:
        await self.node.enter("GetTopology", context)
        cluster_map = self.node.cluster.map
        return cluster_pb2.GetTopologyResponse(
            answerer=self.node.answerer(),
            cluster=cluster_map.cluster,
            epoch=cluster_map.epoch,
            map_digest=self.node.faults.digest,
            members=[
                cluster_pb2.Member(**asdict(member), state=cluster_pb2.MEMBER_STATE_UP)
                for member in cluster_map.members
            ],
            slots=[
                cluster_pb2.SlotRun(count=run.count, shard=run.shard)
                for run in cluster_map.slots.runs()
            ],
        )

    async def get_node_status(
        self, _: cluster_pb2.GetNodeStatusRequest, context: Context
    ) -> cluster_pb2.GetNodeStatusResponse:
        await self.node.enter("GetNodeStatus", context)
        return cluster_pb2.GetNodeStatusResponse(
            answerer=self.node.answerer(),
            state=cluster_pb2.MEMBER_STATE_UP,
            blocks=len(self.node.blocks),
            peers=[cluster_pb2.PeerStatus(node="n-x", zone="x", lag_ms=1500)],
        )


class Namespaces:
    """Namespaces."""

    def __init__(self, node: LyingNode) -> None:
        self.node = node

    async def get_namespace(
        self, request: namespace_pb2.GetNamespaceRequest, context: Context
    ) -> namespace_pb2.GetNamespaceResponse:
        await self.node.enter("GetNamespace", context)
        found = self.node.cluster.namespaces.get(request.name)
        if found is None:
            await abort(context, NamespaceNotFoundError("there is none", field="name"))
        return namespace_pb2.GetNamespaceResponse(namespace=found)

    async def create_namespace(
        self, request: namespace_pb2.CreateNamespaceRequest, context: Context
    ) -> namespace_pb2.CreateNamespaceResponse:
        await self.node.enter("CreateNamespace", context)
        made = namespace_pb2.Namespace()
        made.CopyFrom(request.namespace)
        made.key_salt = SALT
        self.node.cluster.namespaces[made.name] = made
        return namespace_pb2.CreateNamespaceResponse(namespace=made, created=True)
