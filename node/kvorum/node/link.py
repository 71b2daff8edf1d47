"""Link: carries this node's history to one peer, and reconnects for as long as it lives.

The pipe decides what is sent and remembers what is not acknowledged. A link is over when either
side is silent for too long; the next one begins with what was not acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, TypeAlias

import grpc.aio

from kvorum.core import limits
from kvorum.core.errors import KvorumError, UnavailableError
from kvorum.node.channels import Channels
from kvorum.node.driver import Driver
from kvorum.node.engine.events import Effect
from kvorum.node.engine.pipe import Pipe
from kvorum.node.history import HistoryWriter
from kvorum.node.lifecycle import Lifecycle
from kvorum.node.membership import Membership, MemberState
from kvorum.placement import Member
from kvorum.v1 import common_pb2, replication_pb2, status
from kvorum.v1.frames import Frame, replicate_frames

_LOG: Final = logging.getLogger(__name__)

_Call: TypeAlias = "grpc.aio.StreamStreamCall[Any, Any]"

IDLE_S: Final = 1.0
"""Seconds between two messages on an idle link; each is answered, so silence is noticed."""

ANSWER_S: Final = 10.0
"""Seconds that a peer may take to acknowledge, or to read on."""

BACKOFF_S_MIN: Final = 0.1
BACKOFF_S_MAX: Final = 2.0


class Link:
    """The link to one peer.

    Attributes:
        peer: the other member.
        pipe: what the peer still has to be told.
        connected: whether the peer takes it in at present.

    Args:
        peer: the other member.
        pipe: what the peer still has to be told.
        channels: opens a connection for this link alone.
        driver: reads blocks.
        lifecycle: who this node is.
        membership: whether the peer is up, and in which life.
    """

    def __init__(
        self,
        peer: Member,
        pipe: Pipe,
        channels: Channels,
        driver: Driver,
        lifecycle: Lifecycle,
        membership: Membership,
    ) -> None:
        self.peer = peer
        self.pipe = pipe
        self.connected = False
        self._replicate = replicate_frames(channels.open(peer))
        self._metadata = channels.metadata
        self._driver = driver
        self._lifecycle = lifecycle
        self._membership = membership
        self._wake = asyncio.Event()
        self._under_way: deque[tuple[int, bool]] = deque()

    @property
    def is_up(self) -> bool:
        """Whether the peer answers heartbeats."""
        return self._membership.state(self.peer.name) in (MemberState.UP, MemberState.DRAINING)

    def offer(self, effect: Effect) -> None:
        """Put a step of the history at the pipe's end."""
        self.pipe.push(effect, self._driver.clock.now_ms())
        self._wake.set()

    async def run(self) -> None:
        """Carry the history until cancelled."""
        backoff_s = BACKOFF_S_MIN
        while True:
            if self.is_up:
                worked = await self._session()
                backoff_s = BACKOFF_S_MIN if worked else min(2 * backoff_s, BACKOFF_S_MAX)
            await asyncio.sleep(backoff_s)

    async def _session(self) -> bool:
        """Carry the history until the connection breaks; return whether it ever worked."""
        self.pipe.reconnect()
        self._under_way.clear()
        call = self._replicate(metadata=self._metadata)
        writer = HistoryWriter(self._driver, lambda frame: _write(call, frame))
        try:
            async with asyncio.TaskGroup() as group:
                halves = [
                    group.create_task(self._until_broken(half), name=f"link {self.peer.name}")
                    for half in (self._send(call, writer), self._receive(call))
                ]
                await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
                for half in halves:
                    half.cancel()
        finally:
            worked, self.connected = self.connected, False
            call.cancel()
            writer.close()
        return worked

    async def _until_broken(self, half: Coroutine[Any, Any, None]) -> None:
        """Run one direction of a link until it breaks, and log why."""
        try:
            await half
        except grpc.aio.AioRpcError as error:
            reason = status.from_rpc_error(error, self.peer.name)
            _LOG.warning("link broke: peer=%s: %s", self.peer.name, reason)
        except (asyncio.InvalidStateError, TimeoutError, KvorumError) as error:
            # InvalidStateError: there was something to write on a call that has just ended.
            _LOG.warning("link broke: peer=%s: %s %s", self.peer.name, type(error).__name__, error)

    async def _send(self, call: _Call, writer: HistoryWriter) -> None:
        await _write(call, Frame(self._opening()))
        while True:
            entries = self.pipe.take()
            for entry in entries:
                sent = await writer.send(entry)
                self._under_way.append((entry.sequence, sent))
                if not sent:
                    self._acknowledge(self.pipe.acknowledged)
            await writer.flush()
            if not entries:
                await self._rest(call)

    async def _rest(self, call: _Call) -> None:
        """Wait for something to send; keep the link alive meanwhile."""
        self._wake.clear()
        try:
            async with asyncio.timeout(IDLE_S):
                await self._wake.wait()
        except TimeoutError:
            await _write(call, Frame(replication_pb2.ReplicateRequest()))

    async def _receive(self, call: _Call) -> None:
        while True:
            async with asyncio.timeout(ANSWER_S):
                response = await call.read()
            if not isinstance(response, replication_pb2.ReplicateResponse):
                raise UnavailableError(f"{self.peer.name} closed the link")
            if not self.connected:
                self.connected = True
                _LOG.info("link works: peer=%s", self.peer.name)
            self._acknowledge(response.acknowledged_sequence, set(response.refused_sequences))

    def _acknowledge(self, sequence: int, refused: frozenset[int] | set[int] = frozenset()) -> None:
        """Note what the peer has; what was passed over right behind it counts as had, too."""
        while self._under_way:
            position, sent = self._under_way[0]
            if sent and position > sequence:
                break
            sequence = max(sequence, position)
            self._under_way.popleft()
        if sequence > self.pipe.acknowledged:
            self.pipe.acknowledge(sequence, refused)
            self._wake.set()

    def _opening(self) -> replication_pb2.ReplicateRequest:
        return replication_pb2.ReplicateRequest(
            open=replication_pb2.ReplicateOpen(
                context=common_pb2.RequestContext(
                    protocol_version=limits.PROTOCOL_VERSION,
                    map_digest=self._lifecycle.identity.map_digest,
                    incarnation=self._membership.incarnation(self.peer.name),
                ),
                sender=self._lifecycle.answerer(),
            )
        )


async def _write(call: _Call, frame: Frame[replication_pb2.ReplicateRequest]) -> None:
    async with asyncio.timeout(ANSWER_S):
        await call.write(frame)
