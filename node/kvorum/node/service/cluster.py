"""ClusterService: the topology, this node's state, and draining it."""

from __future__ import annotations

import os
import resource
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeAlias

from kvorum.node.engine.counters import NamespaceUsage
from kvorum.node.membership import Membership, MemberState
from kvorum.node.replicator import PeerReport
from kvorum.node.service.desk import Desk
from kvorum.node.service.guard import Context
from kvorum.placement import Member
from kvorum.v1 import cluster_pb2, cluster_pb2_grpc

Drain: TypeAlias = "Callable[[float | None], Awaitable[int]]"
"""Drains the node within so many seconds (None: its setting); returns what peers still lack."""

_StateValue = cluster_pb2.MemberState.ValueType

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_VERSION: Final = version("kvorum")
_GAUGES: Final = (
    "candidates",
    "draining_bytes",
    "history_blocks",
    "index_bytes",
    "largest_free_bytes",
    "open_reads",
    "open_writes",
    "tombstones",
    "tombstones_overflowed",
)
"""What the engine says of itself that has no field of its own; see `EngineStatus`."""


class ClusterService(cluster_pb2_grpc.ClusterServiceServicer):
    """The handlers of `ClusterService`.

    Args:
        desk: what the handlers share.
        membership: what this node thinks of the others.
        peers: returns the state of the pipes.
        drain: drains the node.
    """

    def __init__(
        self,
        desk: Desk,
        membership: Membership,
        peers: Callable[[], Iterable[PeerReport]],
        drain: Drain,
    ) -> None:
        self._desk = desk
        self._membership = membership
        self._peers = peers
        self._drain = drain

    async def GetTopology(
        self,
        request: cluster_pb2.GetTopologyRequest,
        context: Context,  # noqa: ARG002  # open to everyone: it is how a client finds the cluster
    ) -> cluster_pb2.GetTopologyResponse:
        """Return the cluster map, and what this node thinks of every member."""
        self._desk.gatekeeper.check_context(request.context)
        cluster_map = self._desk.cluster.map
        return cluster_pb2.GetTopologyResponse(
            answerer=self._desk.lifecycle.answerer(),
            cluster=cluster_map.cluster,
            epoch=cluster_map.epoch,
            map_digest=self._desk.lifecycle.identity.map_digest,
            members=[self._member(member) for member in cluster_map.members],
            slots=[
                cluster_pb2.SlotRun(count=run.count, shard=run.shard)
                for run in cluster_map.slots.runs()
            ],
        )

    async def GetNodeStatus(
        self, request: cluster_pb2.GetNodeStatusRequest, context: Context
    ) -> cluster_pb2.GetNodeStatusResponse:
        """Return the state of this node, with the namespaces of the caller's tenant."""
        caller = self._desk.gatekeeper.caller(request.context, context)
        lifecycle, status = self._desk.lifecycle, self._desk.driver.engine.status()
        peers = list(self._peers())
        shown = [use for use in status.namespaces if caller.tenant in (None, use.id.tenant)]
        return cluster_pb2.GetNodeStatusResponse(
            answerer=lifecycle.answerer(),
            state=self._own_state(),
            uptime_s=(self._desk.driver.clock.now_ms() - lifecycle.born_ms) / 1000,
            version=_VERSION,
            shard=lifecycle.identity.member.shard,
            arena_bytes=status.arena_bytes,
            used_bytes=status.used_bytes,
            pinned_bytes=status.pinned_bytes,
            staged_bytes=status.staged_bytes,
            resident_bytes=resident_bytes(),
            blocks=status.blocks,
            lookup_hits=status.lookup_hits,
            lookup_misses=status.lookup_misses,
            misses={miss.name: count for miss, count in status.misses.items()},
            counters=dict(status.counters)
            | {name: getattr(status, name) for name in _GAUGES}
            | self._edge_counters(peers),
            peers=[_peer_status(peer) for peer in peers],
            namespaces=[_namespace_status(use, caller.tenant) for use in shown],
        )

    async def DrainNode(
        self, request: cluster_pb2.DrainNodeRequest, context: Context
    ) -> cluster_pb2.DrainNodeResponse:
        """Refuse new work from now on, and pass on what the peers lack."""
        self._desk.gatekeeper.admin(request.context, context)
        remaining = await self._drain(request.timeout_ms / 1000 if request.timeout_ms else None)
        return cluster_pb2.DrainNodeResponse(remaining_entries=remaining)

    def _own_state(self) -> cluster_pb2.MemberState.ValueType:
        draining = self._desk.lifecycle.draining
        return _StateValue(MemberState.DRAINING if draining else MemberState.UP)

    def _member(self, member: Member) -> cluster_pb2.Member:
        identity = self._desk.lifecycle.identity
        if member.name == identity.member.name:
            state, incarnation = self._own_state(), identity.incarnation
        else:
            state = _StateValue(self._membership.state(member.name))
            incarnation = self._membership.incarnation(member.name)
        return cluster_pb2.Member(
            name=member.name,
            zone=member.zone,
            shard=member.shard,
            address=member.address,
            state=state,
            incarnation=incarnation,
        )

    def _edge_counters(self, peers: Iterable[PeerReport]) -> dict[str, int]:
        admission = self._desk.admission
        queued = sum(peer.lag_entries for peer in peers)
        lost = sum(peer.overflowed_entries + peer.refused_entries for peer in peers)
        return {
            "refused_calls": admission.calls.refused,
            "refused_gets": admission.gets.refused,
            "refused_puts": admission.puts.refused,
            "replication_queued_entries": queued,
            "replication_lost_entries": lost,
            # Copies that a namespace asked for and that are not where they belong, as far as this
            # node knows: what waits in a pipe, and what a pipe or a peer had to let go.
            "under_replicated_copies": queued + lost,
        }


def resident_bytes() -> int:
    """Return the resident memory of this process, shared memory included."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # the most it ever was


def _peer_status(peer: PeerReport) -> cluster_pb2.PeerStatus:
    return cluster_pb2.PeerStatus(
        node=peer.node,
        zone=peer.zone,
        connected=peer.connected,
        lag_entries=peer.lag_entries,
        lag_bytes=peer.lag_bytes,
        lag_ms=peer.lag_ms,
        overflowed_entries=peer.overflowed_entries,
    )


def _namespace_status(use: NamespaceUsage, tenant: str | None) -> cluster_pb2.NamespaceStatus:
    """Return a namespace's use; for an operator, who sees all tenants, with the tenant's name."""
    return cluster_pb2.NamespaceStatus(
        name=use.id.name if tenant else f"{use.id.tenant}/{use.id.name}",
        blocks=use.blocks,
        used_bytes=use.used_bytes,
        lookup_hits=use.lookup_hits,
        lookup_misses=use.lookup_misses,
    )
