"""Writing: one `Put` to one node, from the opening to the result of every item."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from kvorum.client.caller import (
    CALL_S_MIN,
    Caller,
    namespace_ref,
    raise_if_cancelled,
    request_context,
)
from kvorum.client.packing import pack
from kvorum.client.sources import Source, checksums
from kvorum.client.view import View
from kvorum.core.errors import DeadlineError, InternalError, KvorumError, UnavailableError
from kvorum.core.keys import Chain
from kvorum.placement import Member
from kvorum.v1 import cache_pb2, common_pb2
from kvorum.v1.frames import Frame
from kvorum.v1.status import from_rpc_error

_ANSWER_STALLS: Final = 2


@dataclass(frozen=True, slots=True)
class PutCall:
    """What all calls of one store have in common.

    Attributes:
        view: what is known of the cluster.
        part: which part of each block is stored.
        writer: name of the group of workers whose parts belong together.
        overwrite: whether blocks that are there are replaced.
        first_block: position in the chain of the source's first block.
    """

    view: View
    part: int
    writer: str
    overwrite: bool
    first_block: int

    async def opening(
        self, chain: Chain, source: Source, indices: Sequence[int]
    ) -> Frame[cache_pb2.PutRequest]:
        """Return the message that opens a store of these blocks, with their checksums."""
        items = []
        for index in indices:
            items.append(self._item(chain, source, index))
            await asyncio.sleep(0)  # lookups beside this store have milliseconds, not more
        condition = (
            cache_pb2.PUT_CONDITION_OVERWRITE
            if self.overwrite
            else cache_pb2.PUT_CONDITION_IF_ABSENT
        )
        opening = cache_pb2.PutOpen(
            context=request_context(self.view.map_digest),
            namespace=namespace_ref(self.view.namespace, self.view.fingerprint_digest),
            items=items,
            condition=condition,
            writer=self.writer,
        )
        return Frame(cache_pb2.PutRequest(open=opening))

    def _item(self, chain: Chain, source: Source, index: int) -> cache_pb2.PutItem:
        position = index - self.first_block
        sizes = source.frame_sizes(position)
        return cache_pb2.PutItem(
            block=common_pb2.BlockRef(key=chain.keys[index], slot=chain.slot(index)),
            parent=chain.parent(index),
            index=index,
            part=self.part,
            parts=self.view.fingerprint.parts,
            frame_sizes=sizes,
            frame_crc32c=checksums(source.runs(position), sizes),
        )

    def payload(
        self, source: Source, indices: Sequence[int]
    ) -> Iterator[Frame[cache_pb2.PutRequest]]:
        """Return the messages that carry the blocks."""
        return pack(source.runs(index - self.first_block) for index in indices)


async def put(
    caller: Caller,
    member: Member,
    opening: Frame[cache_pb2.PutRequest],
    payload: Iterable[Frame[cache_pb2.PutRequest]],
    end: float,
    stall_s: float,
) -> Sequence[cache_pb2.PutResult]:
    """Send one batch; return the result of every item.

    Args:
        caller: calls nodes.
        member: where to store.
        opening: the first message.
        payload: the other messages.
        end: when to stop, in seconds of the monotonic clock.
        stall_s: seconds without progress after which the node counts as hung.

    Raises:
        KvorumError: what the node answered, or what became of the call.
    """
    try:
        response = await _send(caller, member, opening, payload, end, stall_s)
        caller.health.answered(member.name, response.answerer)
        if len(response.results) != len(opening.head.open.items):
            raise InternalError(f"{member.name} answered another number of items", field="results")
    except grpc.aio.AioRpcError as error:
        raise caller.failed(member.name, from_rpc_error(error, member.name)) from error
    except asyncio.CancelledError as error:
        raise_if_cancelled()
        closed = UnavailableError(f"the channel to {member.name} was closed")
        raise caller.failed(member.name, closed) from error
    except TimeoutError as error:
        late = DeadlineError(f"{member.name} made no progress for {stall_s:g} s")
        caller.health.stalled(member.name)
        raise caller.failed(member.name, late) from error
    except KvorumError as error:
        raise caller.failed(member.name, error) from error
    return response.results


async def _send(
    caller: Caller,
    member: Member,
    opening: Frame[cache_pb2.PutRequest],
    payload: Iterable[Frame[cache_pb2.PutRequest]],
    end: float,
    stall_s: float,
) -> cache_pb2.PutResponse:
    call = caller.link(member).put()(
        timeout=max(end - time.monotonic(), CALL_S_MIN), metadata=caller.metadata
    )
    try:
        await _write_all(call, opening, payload, stall_s)
        async with asyncio.timeout(stall_s * _ANSWER_STALLS):
            response: cache_pb2.PutResponse | None = await call
        if response is None:  # what gRPC makes of a message that cannot be parsed
            raise InternalError(f"{member.name} sent what is no message", field="response")
        return response
    finally:
        call.cancel()


async def _write_all(
    call: grpc.aio.StreamUnaryCall[Any, Any],
    opening: Frame[cache_pb2.PutRequest],
    payload: Iterable[Frame[cache_pb2.PutRequest]],
    stall_s: float,
) -> None:
    """Send every message, or as many as the node takes: it may answer before the last."""
    try:
        for frame in itertools.chain((opening,), payload):
            async with asyncio.timeout(stall_s):
                await call.write(frame)
        await call.done_writing()
    except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
        # The call is over. Only its result says why: gRPC calls a write that failed because the
        # node had answered already an internal error.
        return
