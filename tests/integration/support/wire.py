"""Wire: one node spoken to with nothing but the generated protobuf code, as any language could.

It checks nothing and hides nothing, so a test can send what no client would, stop at any byte, and
see exactly what the node answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Final, Self, cast

import grpc
import grpc.aio

from kvorum.core import limits
from kvorum.core.checksum import frame_checksums
from kvorum.core.errors import KvorumError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import Tokens, chain, slot_of
from kvorum.core.layout import BlockLayout
from kvorum.v1 import (
    cache_pb2,
    cache_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
    common_pb2,
    namespace_pb2,
    namespace_pb2_grpc,
    status,
)

CALL_S: Final = 20.0
"""Seconds that a call may take unless a test says otherwise."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True)
class Block:
    """One part of one block, as a writer announces and sends it."""

    key: bytes
    payload: bytes
    parent: bytes = b"\1" * limits.KEY_BYTES
    index: int = 0
    slot: int = -1
    part: int = 0
    parts: int = 1
    frame_sizes: tuple[int, ...] = ()

    @property
    def ref(self) -> common_pb2.BlockRef:
        """The block's name; without a slot of its own that of its key."""
        slot = slot_of(self.key) if self.slot < 0 else self.slot
        return common_pb2.BlockRef(key=self.key, slot=slot)

    @property
    def item(self) -> cache_pb2.PutItem:
        """What announces it; one frame unless it has more."""
        sizes = self.frame_sizes or (len(self.payload),)
        return cache_pb2.PutItem(
            block=self.ref,
            parent=self.parent,
            index=self.index,
            part=self.part,
            parts=self.parts,
            frame_sizes=sizes,
            frame_crc32c=frame_checksums(memoryview(self.payload), sizes),
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """A namespace as a caller names it, with the salt of its keys."""

    name: str
    fingerprint: Fingerprint
    salt: bytes = bytes(32)

    @property
    def ref(self) -> common_pb2.NamespaceRef:
        """The namespace on the wire."""
        return common_pb2.NamespaceRef(name=self.name, fingerprint_digest=self.fingerprint.digest())

    def under(self, fingerprint: Fingerprint) -> Scope:
        """Return the same name under another fingerprint."""
        return replace(self, fingerprint=fingerprint)

    def blocks(self, tokens: Tokens, payloads: Sequence[bytes]) -> list[Block]:
        """Return the blocks of a prompt's chain with these payloads, from the first on."""
        keys = chain(self.fingerprint, self.salt, tokens)
        sizes = self.frame_sizes
        return [
            Block(keys.keys[i], payload, keys.parent(i), i, keys.slot(i), frame_sizes=sizes)
            for i, payload in enumerate(payloads)
        ]

    @property
    def frame_sizes(self) -> tuple[int, ...]:
        """Bytes of each layer frame of a part; empty for opaque blocks, which have any size."""
        if self.fingerprint.layout == "opaque":
            return ()
        layout = BlockLayout.of(self.fingerprint)
        return (layout.frame_bytes,) * layout.layers


@dataclass(slots=True)
class Got:
    """What came of one item of a get."""

    miss: int = 0
    group: int = 0
    aborted: int = 0
    sizes: tuple[int, ...] = ()
    checksums: tuple[int, ...] = ()
    data: bytearray = field(default_factory=bytearray)
    headers: int = 0


def put_messages(
    scope: Scope,
    blocks: Sequence[Block],
    *,
    condition: cache_pb2.PutCondition.ValueType = cache_pb2.PUT_CONDITION_IF_ABSENT,
    writer: str = "wire",
    chunk_bytes: int = limits.FRAME_BYTES,
    context: common_pb2.RequestContext | None = None,
) -> Iterator[cache_pb2.PutRequest]:
    """Yield the messages of a store: the opening, then one chunk after the other."""
    yield cache_pb2.PutRequest(
        open=cache_pb2.PutOpen(
            context=context or request_context(),
            namespace=scope.ref,
            items=[block.item for block in blocks],
            condition=condition,
            writer=writer,
        )
    )
    for number, block in enumerate(blocks):
        for offset in range(0, len(block.payload), chunk_bytes):
            run = block.payload[offset : offset + chunk_bytes]
            chunk = cache_pb2.PutChunk(item=number, offset=offset, length=len(run))
            yield cache_pb2.PutRequest(chunks=[chunk], payload=run)


def request_context(digest: bytes = b"", incarnation: int = 0) -> common_pb2.RequestContext:
    """Return the context of a caller of this version."""
    return common_pb2.RequestContext(
        protocol_version=limits.PROTOCOL_VERSION, map_digest=digest, incarnation=incarnation
    )


@contextmanager
def typed(address: str) -> Iterator[None]:
    """Turn a failed call into the `KvorumError` that it carries."""
    try:
        yield
    except grpc.RpcError as error:
        # The synchronous error has the same three methods as the asynchronous one.
        raise status.from_rpc_error(cast(grpc.aio.AioRpcError, error), address) from error


class Wire:
    """One node, call by call; a context manager. Failed calls raise the typed error.

    Args:
        address: host:port of the node, or of a proxy before it.
        token: bearer token, if the cluster asks for one.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address = address
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.channel = grpc.insecure_channel(address, options=_OPTIONS)
        self.cache = cache_pb2_grpc.CacheServiceStub(self.channel)
        self.namespaces = namespace_pb2_grpc.NamespaceServiceStub(self.channel)
        self.cluster = cluster_pb2_grpc.ClusterServiceStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close()

    def status(self) -> cluster_pb2.GetNodeStatusResponse:
        """Return the node's state."""
        with typed(self.address):
            return self.cluster.GetNodeStatus(
                cluster_pb2.GetNodeStatusRequest(context=request_context()),
                timeout=CALL_S,
                metadata=self.metadata,
            )

    def topology(self) -> cluster_pb2.GetTopologyResponse:
        """Return the cluster map as the node knows it."""
        with typed(self.address):
            return self.cluster.GetTopology(
                cluster_pb2.GetTopologyRequest(context=request_context()),
                timeout=CALL_S,
                metadata=self.metadata,
            )

    def create(self, name: str, fingerprint: Fingerprint, *, replicas: int = 0) -> Scope:
        """Make a namespace."""
        request = namespace_pb2.CreateNamespaceRequest(
            context=request_context(),
            namespace=namespace_pb2.Namespace(
                name=name,
                fingerprint=namespace_pb2.Fingerprint(**asdict(fingerprint)),
                policy=namespace_pb2.NamespacePolicy(
                    tier=common_pb2.TIER_EVENTUAL, replicas=replicas
                ),
            ),
        )
        with typed(self.address):
            made = self.namespaces.CreateNamespace(
                request, timeout=CALL_S, metadata=self.metadata
            ).namespace
        return Scope(name, fingerprint, made.key_salt)

    def lookup(
        self, scope: Scope, keys: Sequence[bytes], *, lease_ms: int = 0
    ) -> cache_pb2.LookupResponse:
        """Look keys up, with a description of every block."""
        request = cache_pb2.LookupRequest(
            context=request_context(),
            namespace=scope.ref,
            keys=keys,
            lease_ms=lease_ms,
            describe=True,
        )
        with typed(self.address):
            return self.cache.Lookup(request, timeout=CALL_S, metadata=self.metadata)

    def get(
        self,
        scope: Scope,
        items: Sequence[cache_pb2.GetItem],
        *,
        lease: common_pb2.Lease | None = None,
        context: common_pb2.RequestContext | None = None,
    ) -> list[Got]:
        """Read items; the bytes are not checked against their checksums."""
        request = cache_pb2.GetRequest(
            context=context or request_context(), namespace=scope.ref, items=items, lease=lease
        )
        out = [Got() for _ in items]
        with typed(self.address):
            for message in self.cache.Get(request, timeout=CALL_S, metadata=self.metadata):
                at = 0
                for chunk in message.chunks:
                    got = out[chunk.item]
                    if chunk.HasField("header"):
                        got.headers += 1
                        got.miss, got.group = chunk.header.miss, chunk.header.group
                        got.sizes = tuple(chunk.header.frame_sizes)
                        got.checksums = tuple(chunk.header.frame_crc32c)
                    got.aborted = got.aborted or chunk.aborted
                    if chunk.length and chunk.offset != len(got.data):
                        raise AssertionError(f"item {chunk.item} has a gap at {len(got.data)}")
                    got.data += message.payload[at : at + chunk.length]
                    at += chunk.length
        return out

    def get_blocks(self, scope: Scope, blocks: Sequence[Block]) -> list[Got]:
        """Read blocks that a test stored, each whole."""
        return self.get(scope, [cache_pb2.GetItem(block=b.ref, part=b.part) for b in blocks])

    def open(self, name: str, fingerprint: Fingerprint) -> Scope:
        """Return a namespace that exists, as the caller names it."""
        request = namespace_pb2.GetNamespaceRequest(context=request_context(), name=name)
        with typed(self.address):
            found = self.namespaces.GetNamespace(
                request, timeout=CALL_S, metadata=self.metadata
            ).namespace
        return Scope(name, fingerprint, found.key_salt)

    def put(
        self,
        scope: Scope,
        blocks: Sequence[Block],
        *,
        condition: cache_pb2.PutCondition.ValueType = cache_pb2.PUT_CONDITION_IF_ABSENT,
        writer: str = "wire",
    ) -> list[cache_pb2.PutResult]:
        """Store blocks."""
        return self.send(put_messages(scope, blocks, condition=condition, writer=writer))

    def send(self, messages: Iterator[cache_pb2.PutRequest]) -> list[cache_pb2.PutResult]:
        """Send the messages of a store as they are."""
        with typed(self.address):
            answer = self.cache.Put(messages, timeout=CALL_S, metadata=self.metadata)
        return list(answer.results)

    def refusal(
        self,
        scope: Scope,
        blocks: Sequence[Block],
        *,
        condition: cache_pb2.PutCondition.ValueType = cache_pb2.PUT_CONDITION_IF_ABSENT,
    ) -> KvorumError:
        """Store what must be refused; return the error, of the call or of all its items alike."""
        return self.refusal_of(put_messages(scope, blocks, condition=condition))

    def refusal_of(self, messages: Iterator[cache_pb2.PutRequest]) -> KvorumError:
        """Send what must be refused; return the error, of the call or of all its items alike."""
        try:
            results = self.send(messages)
        except KvorumError as error:
            return error
        errors = [status.from_detail(result.error) for result in results]
        stored = any(r.outcome != cache_pb2.PUT_OUTCOME_REFUSED for r in results)
        if stored or len({error.code for error in errors}) != 1:
            raise AssertionError(f"not refused alike: {results}")
        return errors[0]

    def delete(self, scope: Scope, blocks: Sequence[Block]) -> list[int]:
        """Delete blocks; return how many went for each."""
        request = cache_pb2.DeleteRequest(
            context=request_context(), namespace=scope.ref, blocks=[b.ref for b in blocks]
        )
        with typed(self.address):
            answer = self.cache.Delete(request, timeout=CALL_S, metadata=self.metadata)
        return list(answer.deleted_blocks)

    def pin(self, scope: Scope, blocks: Sequence[Block]) -> list[int]:
        """Pin blocks; return a miss reason for each, 0 if it is pinned."""
        request = cache_pb2.PinRequest(
            context=request_context(), namespace=scope.ref, blocks=[b.ref for b in blocks]
        )
        with typed(self.address):
            answer = self.cache.Pin(request, timeout=CALL_S, metadata=self.metadata)
        return list(answer.misses)

    def unpin(self, scope: Scope, blocks: Sequence[Block]) -> list[int]:
        """Unpin blocks; return a miss reason for each, 0 if it was there."""
        request = cache_pb2.UnpinRequest(
            context=request_context(), namespace=scope.ref, blocks=[b.ref for b in blocks]
        )
        with typed(self.address):
            answer = self.cache.Unpin(request, timeout=CALL_S, metadata=self.metadata)
        return list(answer.misses)

    def stat(self, scope: Scope, blocks: Sequence[Block]) -> list[cache_pb2.BlockStat]:
        """Describe blocks."""
        request = cache_pb2.StatRequest(
            context=request_context(), namespace=scope.ref, blocks=[b.ref for b in blocks]
        )
        with typed(self.address):
            answer = self.cache.Stat(request, timeout=CALL_S, metadata=self.metadata)
        return list(answer.stats)
