"""CacheService: looks up, reads, stores and keeps blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

import numpy as np

from kvorum.core import limits
from kvorum.core.errors import (
    FingerprintError,
    InvalidArgumentError,
    KvorumError,
    NotOwnerError,
    TooLargeError,
)
from kvorum.core.keys import blocks_per_segment, chain, slot_of, tenant_salt
from kvorum.node.engine.events import (
    BlockInfo,
    BlockView,
    Delete,
    Lookup,
    Miss,
    NamespaceId,
    NamespaceRecord,
    Pin,
    Stat,
    Touch,
)
from kvorum.node.service import validation
from kvorum.node.service.desk import Desk
from kvorum.node.service.get_stream import GetStream
from kvorum.node.service.guard import Context
from kvorum.node.service.put_stream import PutStream
from kvorum.node.service.wire import block_stat, block_state, miss_value, put_result
from kvorum.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from kvorum.v1.frames import Frame

AnswerT = TypeVar("AnswerT")

_OnBlocks: TypeAlias = (
    cache_pb2.DeleteRequest
    | cache_pb2.TouchRequest
    | cache_pb2.PinRequest
    | cache_pb2.UnpinRequest
    | cache_pb2.StatRequest
)

_ELSEWHERE: Final = BlockView(Miss.STALE_EPOCH)
_ABSENT: Final[Miss | None] = Miss.STALE_EPOCH


class CacheService(cache_pb2_grpc.CacheServiceServicer):
    """The handlers of `CacheService`.

    Args:
        desk: what the handlers share.
        part_bytes_max: bytes of the largest part that a store may bring.
    """

    def __init__(self, desk: Desk, part_bytes_max: int) -> None:
        self._desk = desk
        self._driver = desk.driver
        self._map = desk.cluster.map
        self._shard = desk.lifecycle.identity.member.shard
        self._part_bytes_max = part_bytes_max

    async def Lookup(
        self, request: cache_pb2.LookupRequest, context: Context
    ) -> cache_pb2.LookupResponse:
        """Find the longest prefix that is present."""
        namespace = self._namespace(request, context)
        validation.check_lookup(request)
        record = self._driver.namespace(namespace)
        keys = tuple(request.keys) or self._keys(record, request.token_ids)
        shards = self._shards(keys, record)
        owned = tuple(shard == self._shard for shard in shards)
        digest = request.namespace.fingerprint_digest
        reply = self._driver.tell(Lookup(namespace, digest, keys, owned, request.lease_ms))
        response = cache_pb2.LookupResponse(
            answerer=self._desk.lifecycle.answerer(),
            present_blocks=reply.present,
            lease=self._lease(reply.lease_until_ms),
        )
        if request.describe:
            states = zip(reply.blocks, shards, owned, strict=True)
            response.blocks.extend(
                block_state(view if ours else _ELSEWHERE, shard) for view, shard, ours in states
            )
        return response

    async def Get(  # type: ignore[override]  # frames, not messages
        self, request: cache_pb2.GetRequest, context: Context
    ) -> None:
        """Send parts of blocks as frames; see `GetStream`."""
        namespace = self._namespace(request, context)
        validation.check_get(request)
        lease_of = request.lease.incarnation
        lease_broken = lease_of not in (0, self._desk.lifecycle.identity.incarnation)
        if not lease_broken:  # else the namespace may have gone with the blocks: STALE_EPOCH
            self._driver.namespace(namespace)
        stream = GetStream(
            self._driver,
            namespace,
            request.namespace.fingerprint_digest,
            context.write,
            lease_broken=lease_broken,
        )
        await stream.run(request.items, self._owned(item.block for item in request.items))

    async def Put(  # type: ignore[override]  # frames, not messages
        self, requests: AsyncIterator[Frame[cache_pb2.PutRequest]], context: Context
    ) -> cache_pb2.PutResponse:
        """Take parts of blocks as frames; see `PutStream`."""
        self._desk.lifecycle.require_serving()
        opening = _opening(await anext(requests, None))
        namespace = self._namespace(opening, context)
        validation.check_put(opening, self._part_bytes_max)
        _check_fingerprint(opening, self._driver.namespace(namespace))
        owned = self._owned(item.block for item in opening.items)
        stream = PutStream(self._driver, namespace, opening, owned)
        try:
            async for frame in requests:
                stream.take(frame)
        finally:
            stream.abort()
        zone = self._desk.lifecycle.identity.member.zone
        return cache_pb2.PutResponse(
            answerer=self._desk.lifecycle.answerer(),
            results=[put_result(result, zone) for result in stream.results()],
        )

    async def Delete(
        self, request: cache_pb2.DeleteRequest, context: Context
    ) -> cache_pb2.DeleteResponse:
        """Delete blocks, with what continues them."""
        namespace = self._blocks_of(request, context)
        self._desk.lifecycle.require_serving()
        for index, ours in enumerate(self._owned(request.blocks)):
            if not ours:
                raise NotOwnerError(
                    "another shard owns the slot",
                    field=f"blocks[{index}].slot",
                    limit=f"a slot of shard {self._shard}",
                )
        event = Delete(
            namespace,
            request.namespace.fingerprint_digest,
            tuple(block.key for block in request.blocks),
            tuple(block.slot for block in request.blocks),
        )
        return cache_pb2.DeleteResponse(
            answerer=self._desk.lifecycle.answerer(), deleted_blocks=self._driver.tell(event)
        )

    async def Touch(
        self, request: cache_pb2.TouchRequest, context: Context
    ) -> cache_pb2.TouchResponse:
        """Mark blocks as used and renew their lease."""
        namespace = self._blocks_of(request, context)
        validation.check_lease(request.lease_ms)
        leased_until_ms: int | None = None

        def touch(keys: tuple[bytes, ...]) -> Sequence[Miss | None]:
            nonlocal leased_until_ms
            digest = request.namespace.fingerprint_digest
            event = Touch(namespace, digest, keys, request.lease_ms)
            misses, leased_until_ms = self._driver.tell(event)
            return misses

        misses = self._ask(request.blocks, touch, _ABSENT)
        return cache_pb2.TouchResponse(
            answerer=self._desk.lifecycle.answerer(),
            misses=[miss_value(miss) for miss in misses],
            lease=self._lease(leased_until_ms),
        )

    async def Pin(self, request: cache_pb2.PinRequest, context: Context) -> cache_pb2.PinResponse:
        """Keep blocks from eviction."""
        misses = self._pin(request, context, pinned=True)
        return cache_pb2.PinResponse(answerer=self._desk.lifecycle.answerer(), misses=misses)

    async def Unpin(
        self, request: cache_pb2.UnpinRequest, context: Context
    ) -> cache_pb2.UnpinResponse:
        """End a pin."""
        misses = self._pin(request, context, pinned=False)
        return cache_pb2.UnpinResponse(answerer=self._desk.lifecycle.answerer(), misses=misses)

    async def Stat(
        self, request: cache_pb2.StatRequest, context: Context
    ) -> cache_pb2.StatResponse:
        """Describe blocks."""
        namespace = self._blocks_of(request, context)
        digest = request.namespace.fingerprint_digest

        def stat(keys: tuple[bytes, ...]) -> Sequence[BlockInfo]:
            return self._driver.tell(Stat(namespace, digest, keys))

        infos = self._ask(request.blocks, stat, BlockInfo(Miss.STALE_EPOCH))
        return cache_pb2.StatResponse(
            answerer=self._desk.lifecycle.answerer(), stats=[block_stat(info) for info in infos]
        )

    def _pin(
        self,
        request: cache_pb2.PinRequest | cache_pb2.UnpinRequest,
        context: Context,
        *,
        pinned: bool,
    ) -> list[common_pb2.MissReason.ValueType]:
        namespace = self._blocks_of(request, context)
        digest = request.namespace.fingerprint_digest

        def pin(keys: tuple[bytes, ...]) -> Sequence[Miss | None]:
            misses = self._driver.tell(Pin(namespace, digest, keys, pinned))
            if isinstance(misses, KvorumError):
                raise misses
            return misses

        return [miss_value(miss) for miss in self._ask(request.blocks, pin, _ABSENT)]

    def _namespace(
        self,
        request: cache_pb2.LookupRequest | cache_pb2.GetRequest | cache_pb2.PutOpen | _OnBlocks,
        context: Context,
    ) -> NamespaceId:
        return self._desk.gatekeeper.namespace(request.context, request.namespace, context)

    def _blocks_of(self, request: _OnBlocks, context: Context) -> NamespaceId:
        namespace = self._namespace(request, context)
        validation.check_blocks(request.blocks)
        return namespace

    def _ask(
        self,
        blocks: Sequence[common_pb2.BlockRef],
        ask: Callable[[tuple[bytes, ...]], Sequence[AnswerT]],
        elsewhere: AnswerT,
    ) -> list[AnswerT]:
        """Ask about the blocks whose slots are this shard's; the others are `elsewhere`."""
        owned = self._owned(blocks)
        keys = tuple(block.key for block, ours in zip(blocks, owned, strict=True) if ours)
        answers = iter(ask(keys))
        return [next(answers) if ours else elsewhere for ours in owned]

    def _owned(self, blocks: Iterable[common_pb2.BlockRef]) -> list[bool]:
        return [self._map.shard_of(block.slot) == self._shard for block in blocks]

    def _keys(self, record: NamespaceRecord, token_ids: Sequence[int]) -> tuple[bytes, ...]:
        blocks = len(token_ids) // record.fingerprint.block_tokens
        if blocks > limits.LOOKUP_BLOCKS_MAX:
            raise TooLargeError(
                f"token_ids are {blocks} blocks",
                field="token_ids",
                limit=f"{limits.LOOKUP_BLOCKS_MAX} blocks",
            )
        salt = tenant_salt(self._desk.cluster.key_secret, record.id.tenant)
        tokens = np.fromiter(token_ids, dtype=np.uint32, count=len(token_ids))
        return chain(record.fingerprint, salt, tokens).keys

    def _shards(self, keys: Sequence[bytes], record: NamespaceRecord) -> list[int]:
        """Return the shard of each block of a prompt: that of its segment's first block."""
        size = blocks_per_segment(record.fingerprint.block_tokens)
        heads = [self._map.shard_of(slot_of(key)) for key in keys[::size]]
        return [heads[index // size] for index in range(len(keys))]

    def _lease(self, until_ms: int | None) -> common_pb2.Lease | None:
        if until_ms is None:
            return None
        return common_pb2.Lease(
            expires_unix_ms=until_ms,
            duration_ms=max(until_ms - self._driver.clock.now_ms(), 0),
            incarnation=self._desk.lifecycle.identity.incarnation,
        )


def _opening(frame: Frame[cache_pb2.PutRequest] | None) -> cache_pb2.PutOpen:
    if frame is None or not frame.head.HasField("open"):
        raise InvalidArgumentError(
            "the first message does not open the store", field="open", limit="the first message"
        )
    if frame.payload.nbytes or frame.head.chunks:
        raise InvalidArgumentError(
            "the message that opens the store brings payload", field="payload", limit="later"
        )
    return frame.head.open


def _check_fingerprint(opening: cache_pb2.PutOpen, record: NamespaceRecord) -> None:
    if opening.namespace.fingerprint_digest != record.fingerprint.digest():
        raise FingerprintError(
            f"the namespace {record.id.name} has another fingerprint",
            field="open.namespace.fingerprint_digest",
        )
