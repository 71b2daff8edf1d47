"""Node: one cache node, put together from its configuration, and its life from start to end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kvorum.core.errors import UnavailableError
from kvorum.node.admission import Admission
from kvorum.node.arena import Arena
from kvorum.node.auth import Authenticator
from kvorum.node.channels import MESSAGE_OPTIONS, Channels, server_credentials
from kvorum.node.clock import Clock
from kvorum.node.config import NodeConfig
from kvorum.node.driver import Driver
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import (
    ApplyNamespace,
    NamespaceId,
    NamespaceRecord,
    Policy,
    Tick,
)
from kvorum.node.exchange import NamespaceExchange
from kvorum.node.heartbeat import Heartbeats
from kvorum.node.lifecycle import Identity, Lifecycle
from kvorum.node.membership import Membership
from kvorum.node.replicator import Replicator
from kvorum.node.service.cache import CacheService
from kvorum.node.service.cluster import ClusterService
from kvorum.node.service.desk import Desk
from kvorum.node.service.gatekeeper import Gatekeeper
from kvorum.node.service.guard import Guard
from kvorum.node.service.namespaces import NamespaceService
from kvorum.node.service.replication import ReplicationService
from kvorum.placement import ClusterFile, NamespaceSpec
from kvorum.v1 import (
    cache_pb2,
    cache_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
    frames,
    namespace_pb2,
    namespace_pb2_grpc,
    replication_pb2,
    replication_pb2_grpc,
)

_LOG: Final = logging.getLogger(__name__)

TICK_S: Final = 0.25
STOP_GRACE_S: Final = 1.0
"""Seconds that calls under way get when the server stops."""

HEALTH_S: Final = 1.0
"""Seconds that telling those who watch our health may take."""

_SERVER_OPTIONS: Final = (
    *MESSAGE_OPTIONS,
    ("grpc.so_reuseport", 0),
    # gRPC would widen each connection's window to what the network can hold, and keep as much in
    # memory for every stream; a window that grows with the message being read is as fast.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_concurrent_streams", 1_024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
_SERVICES: Final = tuple(
    service.full_name
    for module in (cache_pb2, cluster_pb2, namespace_pb2, replication_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)


class Node:
    """One cache node.

    Args:
        config: its settings.
        cluster: what all members agree on.
        clock: time.
        incarnation: its birth number, greater than that of every life before.

    Raises:
        InvalidArgumentError: it is no member of the cluster, would listen beyond this machine
            without TLS, or the arena does not fit the machine.
    """

    def __init__(
        self, config: NodeConfig, cluster: ClusterFile, clock: Clock, incarnation: int
    ) -> None:
        cluster.check_exposure(tls=config.tls)
        member = cluster.map.member(config.name)
        self.address = config.listen or member.address
        self._config = config
        self._cluster = cluster
        self._ending = asyncio.Event()
        self._stopping = asyncio.Event()
        self._health = health.aio.HealthServicer()
        self._admission = Admission(config)
        self._lifecycle = Lifecycle(Identity(member, incarnation, cluster.digest()), clock)
        others = tuple(one for one in cluster.map.members if one is not member)
        self._membership = Membership(
            cluster.map, member.name, clock, round(config.down_after_s * 1000)
        )
        capacity = config.capacity_bytes
        self._arena = Arena(capacity)
        engine = Engine(EngineSettings(capacity_bytes=capacity, eviction=config.eviction))
        self._driver = Driver(engine, self._arena, clock)
        self._channels = Channels(config, cluster.peer_token)
        self._exchange = NamespaceExchange(self._driver, len(cluster.map.zones))
        self._heartbeats = Heartbeats(
            others,
            self._channels,
            self._lifecycle,
            self._membership,
            self._exchange,
            config.heartbeat_s,
        )
        self._replicator = Replicator(
            config, cluster.map, self._driver, self._channels, self._lifecycle, self._membership
        )
        self._driver.on_effect = self._replicator.offer
        for spec in cluster.namespaces:
            self._driver.tell(ApplyNamespace(_first_record(spec)))

    async def serve(self, ready: Callable[[str, str], None] | None = None) -> None:
        """Serve until `stop`.

        Args:
            ready: called with the node's name and address when it serves.

        Raises:
            UnavailableError: the address cannot be had.
        """
        server, replication = self._server()
        for service in _SERVICES:
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        await server.start()
        name = self._lifecycle.identity.member.name
        _LOG.info("node serves: name=%s address=%s", name, self.address)
        try:
            if ready is not None:
                ready(name, self.address)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._heartbeats.run(), name="heartbeats"),
                    group.create_task(self._replicator.run(), name="replicator"),
                    group.create_task(self._tick(), name="tick"),
                    group.create_task(self._end(), name="end"),
                ]
                await self._stopping.wait()
                for task in tasks:
                    task.cancel()
        finally:
            replication.end()
            await server.stop(STOP_GRACE_S)
            await self._channels.close()
            self._arena.close()
            _LOG.info("node ended: name=%s", name)

    async def drain(self, timeout_s: float | None = None) -> int:
        """Refuse stores from now on, serve reads on, and pass on what the peers lack.

        Args:
            timeout_s: what passing on may take; None for the setting `drain_s`.

        Returns:
            Entries that peers still lack.
        """
        if not self._lifecycle.draining:
            self._lifecycle.draining = True
            _LOG.info("node drains: name=%s", self._lifecycle.identity.member.name)
        try:
            async with asyncio.timeout(HEALTH_S):
                await self._health.enter_graceful_shutdown()
        except TimeoutError:
            # Its status is set one service after the other, each behind those who watch it.
            _LOG.warning("a health watcher does not read: not every service says NOT_SERVING")
        return await self._replicator.flush(
            self._config.drain_s if timeout_s is None else timeout_s
        )

    def shut_down(self) -> None:
        """Drain, then make `serve` end; called again, make it end at once."""
        if self._ending.is_set():
            self.stop()
        self._ending.set()

    async def _end(self) -> None:
        await self._ending.wait()
        await self.drain()
        self.stop()

    def stop(self) -> None:
        """Make `serve` end; calls that are under way get a second."""
        self._stopping.set()

    def _server(self) -> tuple[grpc.aio.Server, ReplicationService]:
        config = self._config
        server = grpc.aio.server(
            interceptors=(Guard(self._admission, config.call_s_max),), options=_SERVER_OPTIONS
        )
        gatekeeper = Gatekeeper(self._lifecycle.identity, Authenticator(self._cluster))
        desk = Desk(self._cluster, self._driver, gatekeeper, self._lifecycle, self._admission)
        replication = ReplicationService(desk, self._membership, self._exchange)
        self._add_services(frames.generic_only(server), desk, replication)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        try:
            if config.tls:
                server.add_secure_port(self.address, server_credentials(config))
            else:
                server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise UnavailableError(
                f"cannot listen on {self.address}: {error}", field="listen"
            ) from error
        return server, replication

    def _add_services(
        self, server: grpc.aio.Server, desk: Desk, replication: ReplicationService
    ) -> None:
        cache = CacheService(desk, self._config.part_bytes_max)
        frames.serve_cache_frames(server, cache.Get, cache.Put)
        frames.serve_replication_frames(server, replication.Replicate)
        cache_pb2_grpc.add_CacheServiceServicer_to_server(cache, server)
        replication_pb2_grpc.add_ReplicationServiceServicer_to_server(replication, server)
        namespace_pb2_grpc.add_NamespaceServiceServicer_to_server(
            NamespaceService(desk, self._heartbeats.announce), server
        )
        cluster_pb2_grpc.add_ClusterServiceServicer_to_server(
            ClusterService(desk, self._membership, self._replicator.reports, self.drain), server
        )

    async def _tick(self) -> None:
        while True:
            self._driver.tell(Tick())
            await asyncio.sleep(TICK_S)


def _first_record(spec: NamespaceSpec) -> NamespaceRecord:
    return NamespaceRecord(
        NamespaceId(spec.tenant, spec.name), spec.fingerprint, Policy(**spec.policy()), revision=1
    )
