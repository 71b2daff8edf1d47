"""Heartbeats: every other member is asked each second whether it lives, and what it knows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

import grpc.aio

from kvorum.core import limits
from kvorum.core.errors import KvorumError, UnavailableError
from kvorum.node.channels import Channels
from kvorum.node.config import HEARTBEAT_DEADLINE_S
from kvorum.node.engine.events import NamespaceRecord
from kvorum.node.exchange import NamespaceExchange
from kvorum.node.lifecycle import Lifecycle
from kvorum.node.membership import Membership
from kvorum.node.service.wire import record_message
from kvorum.placement import Member
from kvorum.v1 import common_pb2, replication_pb2, replication_pb2_grpc, status

_LOG: Final = logging.getLogger(__name__)


class Heartbeats:
    """Speaks with every other member.

    Args:
        members: the other members.
        channels: opens connections.
        lifecycle: who this node is.
        membership: remembers who answered.
        exchange: the namespaces that travel along.
        interval_s: seconds between two heartbeats to one member.
    """

    def __init__(
        self,
        members: tuple[Member, ...],
        channels: Channels,
        lifecycle: Lifecycle,
        membership: Membership,
        exchange: NamespaceExchange,
        interval_s: float,
    ) -> None:
        self._members = members
        self._metadata = channels.metadata
        self._lifecycle = lifecycle
        self._membership = membership
        self._exchange = exchange
        self._interval_s = interval_s
        self._errors: dict[str, str] = {}
        self._stubs: Mapping[str, replication_pb2_grpc.ReplicationServiceAsyncStub] = {
            member.name: replication_pb2_grpc.ReplicationServiceStub(channels.open(member))
            for member in members
        }

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        async with asyncio.TaskGroup() as group:
            for member in self._members:
                group.create_task(self._beat_on(member), name=f"heartbeat {member.name}")

    async def announce(self, record: NamespaceRecord) -> frozenset[str]:
        """Tell every member of a changed namespace; return the zones of those that answered.

        Members that seem to be down are told, too: they may just have come back. One that is down
        indeed costs the deadline of a heartbeat. A member that holds a record that goes before this
        one says so, and this node takes it in: of two changes at once, one does not succeed.
        """
        message = record_message(record)
        async with asyncio.TaskGroup() as group:
            tasks = [(m.zone, group.create_task(self._tell(m, message))) for m in self._members]
        return frozenset(zone for zone, task in tasks if task.result())

    async def _tell(self, member: Member, record: replication_pb2.NamespaceRecord) -> bool:
        request = replication_pb2.ApplyNamespaceRequest(context=self._context(), record=record)
        try:
            response = await self._stubs[member.name].ApplyNamespace(
                request,
                timeout=HEARTBEAT_DEADLINE_S,
                metadata=self._metadata,
                wait_for_ready=True,  # a member that just came up may have called us first
            )
        except grpc.aio.AioRpcError as error:
            self._note(member, status.from_rpc_error(error, member.name))
            return False
        if response.HasField("known"):
            self._exchange.take_in(member.name, [response.known])
        return True

    async def _beat_on(self, member: Member) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._interval_s
            try:
                await self._beat(member)
            except grpc.aio.AioRpcError as error:
                self._note(member, status.from_rpc_error(error, member.name))
            except KvorumError as error:
                self._note(member, error)
            else:
                self._note(member, None)
            await asyncio.sleep(max(due - loop.time(), 0))

    async def _beat(self, member: Member) -> None:
        request = replication_pb2.HelloRequest(
            context=self._context(),
            caller=self._lifecycle.answerer(),
            draining=self._lifecycle.draining,
            namespaces=self._exchange.messages(member.name),
        )
        response = await self._stubs[member.name].Hello(
            request, timeout=HEARTBEAT_DEADLINE_S, metadata=self._metadata
        )
        answerer = response.answerer
        if answerer.node != member.name:
            raise UnavailableError(f"{answerer.node} answers at {member.address}", field="address")
        self._membership.heard(member.name, answerer.incarnation, draining=response.draining)
        self._exchange.take_in(member.name, response.namespaces)

    def _context(self) -> common_pb2.RequestContext:
        return common_pb2.RequestContext(
            protocol_version=limits.PROTOCOL_VERSION,
            map_digest=self._lifecycle.identity.map_digest,
        )

    def _note(self, member: Member, error: KvorumError | None) -> None:
        """Log what changed, not every lost heartbeat."""
        text = "" if error is None else type(error).__name__
        if text == self._errors.get(member.name, ""):
            return
        self._errors[member.name] = text
        if error is None:
            _LOG.info("member answers: name=%s", member.name)
        else:
            _LOG.warning("member does not answer: name=%s: %s", member.name, error)
