"""Status: asks every node how it is."""

from __future__ import annotations

import asyncio

from kvorum.client.caller import Caller, request_context
from kvorum.client.nodes import NamespaceUse, NodeInfo, NodeState, NodeStatus, PeerLag
from kvorum.client.view import STATES
from kvorum.core.errors import KvorumError
from kvorum.placement import ClusterMap, Member
from kvorum.v1 import cluster_pb2


async def node_statuses(
    caller: Caller, cluster_map: ClusterMap, map_digest: bytes, timeout_s: float
) -> list[NodeStatus]:
    """Return the state of every node, by zone and shard; those that do not answer included."""
    members = sorted(cluster_map.members, key=lambda member: (member.zone, member.shard))
    request = cluster_pb2.GetNodeStatusRequest(context=request_context(map_digest))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_status(caller, m, request, timeout_s)) for m in members]
    return [task.result() for task in tasks]


async def _status(
    caller: Caller, member: Member, request: cluster_pb2.GetNodeStatusRequest, timeout_s: float
) -> NodeStatus:
    node = caller.health.of(member.name)
    breaker = node.breaker.state.value
    try:
        method = caller.link(member).cluster.GetNodeStatus
        answer = await caller.unary(member, method, request, timeout_s)
    except KvorumError as error:
        info = _info(member, NodeState.DOWN, node.incarnation)
        return NodeStatus(info=info, error=error, breaker=breaker)
    state = STATES.get(answer.state, NodeState.UNKNOWN)
    return NodeStatus(
        info=_info(member, state, answer.answerer.incarnation),
        breaker=node.breaker.state.value,
        uptime_s=answer.uptime_s,
        version=answer.version,
        arena_bytes=answer.arena_bytes,
        used_bytes=answer.used_bytes,
        pinned_bytes=answer.pinned_bytes,
        staged_bytes=answer.staged_bytes,
        resident_bytes=answer.resident_bytes,
        blocks=answer.blocks,
        lookup_hits=answer.lookup_hits,
        lookup_misses=answer.lookup_misses,
        misses=dict(answer.misses),
        counters=dict(answer.counters),
        peers=tuple(_peer(peer) for peer in answer.peers),
        namespaces=tuple(_use(use) for use in answer.namespaces),
    )


def _info(member: Member, state: NodeState, incarnation: int) -> NodeInfo:
    return NodeInfo(
        name=member.name,
        zone=member.zone,
        shard=member.shard,
        address=member.address,
        state=state,
        incarnation=incarnation,
    )


def _peer(peer: cluster_pb2.PeerStatus) -> PeerLag:
    return PeerLag(
        node=peer.node,
        zone=peer.zone,
        connected=peer.connected,
        lag_entries=peer.lag_entries,
        lag_bytes=peer.lag_bytes,
        lag_s=peer.lag_ms / 1000,
        overflowed_entries=peer.overflowed_entries,
    )


def _use(use: cluster_pb2.NamespaceStatus) -> NamespaceUse:
    return NamespaceUse(
        name=use.name,
        blocks=use.blocks,
        used_bytes=use.used_bytes,
        lookup_hits=use.lookup_hits,
        lookup_misses=use.lookup_misses,
    )
