"""Reading: one `Get` to one node, from the request to the last frame."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from kvorum.client.assembly import Assembly
from kvorum.client.caller import (
    CALL_S_MIN,
    Caller,
    namespace_ref,
    raise_if_cancelled,
    request_context,
)
from kvorum.client.reasons import reason_of
from kvorum.client.results import Hit, LocatedBlock, MissReason
from kvorum.client.view import View
from kvorum.core.errors import ChecksumError, KvorumError, UnavailableError
from kvorum.placement import Member
from kvorum.v1 import cache_pb2, common_pb2
from kvorum.v1.status import from_rpc_error

_END_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class GetCall:
    """What all calls of one fetch have in common.

    Attributes:
        view: what is known of the cluster.
        hit: whose blocks are fetched, with its leases.
        part: which part.
        layers: range of layers; None for all.
        frame_sizes: bytes of each frame of an item; None if only the answer knows.
    """

    view: View
    hit: Hit
    part: int
    layers: tuple[int, int] | None
    frame_sizes: tuple[int, ...] | None

    def request(self, blocks: Sequence[LocatedBlock], node: str) -> cache_pb2.GetRequest:
        """Return the request to a node for these blocks."""
        begin, end = self.layers or (0, 0)
        lease = next((lease for lease in self.hit.leases if lease.node == node), None)
        return cache_pb2.GetRequest(
            context=request_context(self.view.map_digest),
            namespace=namespace_ref(self.view.namespace, self.view.fingerprint_digest),
            items=[
                cache_pb2.GetItem(
                    block=common_pb2.BlockRef(key=block.key, slot=block.slot),
                    part=self.part,
                    frame_begin=begin,
                    frame_end=end,
                    group=block.group,
                )
                for block in blocks
            ],
            lease=None
            if lease is None
            else common_pb2.Lease(
                expires_unix_ms=lease.expires_unix_ms,
                duration_ms=lease.duration_ms,
                incarnation=lease.incarnation,
            ),
        )


class Reading:
    """One answer.

    Attributes:
        member: the node that was asked.
        positions: the blocks that it was asked for.
        assembly: takes the answer; set before `run`.
        started_at: when it was asked, in seconds of the monotonic clock.
        progress_at: when the last frame came.
        begun: whether a frame came.
        hedged: whether another replica was asked because this one was slow.
        dropped: whether it was given up.
    """

    assembly: Assembly

    def __init__(self, caller: Caller, member: Member, positions: Sequence[int]) -> None:
        self.member = member
        self.positions = tuple(positions)
        self.started_at = self.progress_at = time.monotonic()
        self.begun = self.hedged = self.dropped = False
        self._caller = caller

    def drop(self) -> None:
        """Give the answer up: whatever it had not brought is free for others."""
        self.dropped = True
        self.assembly.fail_rest(MissReason.TIMEOUT)

    async def run(self, request: cache_pb2.GetRequest, end: float) -> KvorumError | None:
        """Read the answer to its end; return the error that ended it, if one did."""
        name = self.member.name
        try:
            await self._read(request, end)
        except grpc.aio.AioRpcError as error:
            return self._fail(from_rpc_error(error, name))
        except KvorumError as error:
            return self._fail(error)
        except asyncio.CancelledError:
            raise_if_cancelled()
            return self._fail(UnavailableError(f"the channel to {name} was closed"))
        return None

    def _fail(self, error: KvorumError) -> KvorumError:
        self._caller.failed(self.member.name, error)
        self.assembly.fail_rest(reason_of(error))
        return error

    async def _read(self, request: cache_pb2.GetRequest, end: float) -> None:
        call = self._caller.link(self.member).get()(
            request,
            timeout=max(end - time.monotonic(), CALL_S_MIN),
            metadata=self._caller.metadata,
        )
        try:
            while not self.assembly.over:
                frame: Any = await call.read()
                if frame is grpc.aio.EOF:
                    raise ChecksumError(f"{self.member.name} cut the answer short", field="chunks")
                self._note_progress()
                self.assembly.take(frame)
            await _end_of(call)
        finally:
            call.cancel()
        self._caller.health.of(self.member.name).breaker.success()

    def _note_progress(self) -> None:
        self.progress_at = time.monotonic()
        if not self.begun:
            self.begun = True
            reads = self._caller.health.of(self.member.name).reads
            reads.add(self.progress_at - self.started_at)


async def _end_of(call: grpc.aio.UnaryStreamCall[Any, Any]) -> None:
    """Let the call end by itself, which spares the node a cancellation; nothing depends on it."""
    with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError):
        async with asyncio.timeout(_END_S):
            await call.read()
