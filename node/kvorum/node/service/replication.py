"""ReplicationService: what other members say to this one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from kvorum.core.errors import (
    DeadlineError,
    DrainingError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from kvorum.node.exchange import NamespaceExchange
from kvorum.node.membership import Membership
from kvorum.node.service.desk import Desk
from kvorum.node.service.guard import Context
from kvorum.node.service.replica_stream import ReplicaStream
from kvorum.v1 import common_pb2, replication_pb2, replication_pb2_grpc
from kvorum.v1.frames import Frame

SILENCE_S_MAX: Final = 15.0
"""Seconds without a message, or without reading one, after which a pipe is broken.

A living peer sends one each second, and reads as fast as it can.
"""


class ReplicationService(replication_pb2_grpc.ReplicationServiceServicer):
    """The handlers of `ReplicationService`.

    Args:
        desk: what the handlers share.
        membership: remembers who called.
        exchange: the namespaces that travel with heartbeats.
    """

    def __init__(self, desk: Desk, membership: Membership, exchange: NamespaceExchange) -> None:
        self._desk = desk
        self._membership = membership
        self._exchange = exchange
        self._streams: dict[str, object] = {}
        self._pipes: set[asyncio.Timeout] = set()
        self._ended = False

    def end(self) -> None:
        """End every pipe with a typed error, and refuse new ones: the node goes."""
        self._ended = True
        for pipe in self._pipes:
            pipe.reschedule(0)

    async def Hello(
        self, request: replication_pb2.HelloRequest, context: Context
    ) -> replication_pb2.HelloResponse:
        """Hear a member, and answer."""
        self._desk.gatekeeper.peer(request.context, context)
        name = self._peer(request.caller)
        self._membership.called(name, request.caller.incarnation, draining=request.draining)
        self._exchange.take_in(name, request.namespaces)
        return replication_pb2.HelloResponse(
            answerer=self._desk.lifecycle.answerer(),
            draining=self._desk.lifecycle.draining,
            namespaces=self._exchange.messages(name),
        )

    async def Replicate(  # type: ignore[override]  # frames, not messages
        self,
        requests: AsyncIterator[Frame[replication_pb2.ReplicateRequest]],
        context: Context,
    ) -> None:
        """Take a peer's history; see `ReplicaStream`."""
        # Nothing else would end a pipe, and a node that goes would wait for it in vain.
        async with asyncio.timeout(0 if self._ended else None) as pipe:
            self._pipes.add(pipe)
            try:
                await self._replicate(requests, context)
            except asyncio.CancelledError:
                if self._ended:
                    raise DrainingError("the node ends", field="node") from None
                raise
            finally:
                self._pipes.discard(pipe)

    async def _replicate(
        self, requests: AsyncIterator[Frame[replication_pb2.ReplicateRequest]], context: Context
    ) -> None:
        opening = _opening(await _next(requests))
        self._desk.gatekeeper.peer(opening.context, context)
        name = self._peer(opening.sender)
        self._membership.require_current(name, opening.sender.incarnation)
        stream = ReplicaStream(self._desk.driver)
        mine = self._streams[name] = object()
        try:
            while (frame := await _next(requests)) is not None:
                # The peer has opened another stream: this one is of a connection that died
                # without a word, and what it still brings would come out of order.
                if self._streams.get(name) is not mine:
                    raise DeadlineError(f"{name} has opened another pipe", field="open")
                stream.take(frame)
                self._note(name, stream)
                answer = replication_pb2.ReplicateResponse(
                    acknowledged_sequence=stream.acknowledged,
                    refused_sequences=stream.take_refused(),
                )
                async with asyncio.timeout(SILENCE_S_MAX):
                    await context.write(answer)
        finally:
            stream.abort()
            if self._streams.get(name) is mine:
                del self._streams[name]
                self._desk.lifecycle.caught_up(name)

    async def ApplyNamespace(
        self, request: replication_pb2.ApplyNamespaceRequest, context: Context
    ) -> replication_pb2.ApplyNamespaceResponse:
        """Hear of a namespace that changed."""
        self._desk.gatekeeper.peer(request.context, context)
        if self._exchange.apply(request.record):
            return replication_pb2.ApplyNamespaceResponse(applied=True)
        return replication_pb2.ApplyNamespaceResponse(known=self._exchange.known(request.record))

    def _peer(self, caller: common_pb2.Answerer) -> str:
        if not self._membership.knows(caller.node):
            raise PermissionDeniedError(
                f"{caller.node!r:.140} is no other member",
                field="caller.node",
                limit="another member of the cluster file",
            )
        if not caller.incarnation:
            raise InvalidArgumentError(
                "the caller has no incarnation", field="caller.incarnation", limit="at least 1"
            )
        return caller.node

    def _note(self, name: str, stream: ReplicaStream) -> None:
        if stream.behind_since_ms is None:
            self._desk.lifecycle.caught_up(name)
        else:
            self._desk.lifecycle.announced(name, stream.behind_since_ms)


async def _next(
    requests: AsyncIterator[Frame[replication_pb2.ReplicateRequest]],
) -> Frame[replication_pb2.ReplicateRequest] | None:
    """Return the next message; None at the end of the stream.

    Raises:
        TimeoutError: the peer has been silent for too long.
    """
    async with asyncio.timeout(SILENCE_S_MAX):
        return await anext(requests, None)


def _opening(
    frame: Frame[replication_pb2.ReplicateRequest] | None,
) -> replication_pb2.ReplicateOpen:
    if frame is None or not frame.head.HasField("open"):
        raise InvalidArgumentError(
            "the first message does not open the pipe", field="open", limit="the first message"
        )
    return frame.head.open
