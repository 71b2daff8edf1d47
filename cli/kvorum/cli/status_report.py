"""What `kvorum status` reports, as values: every node, and the sums over zones and shards."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kvorum.client import NodeState, NodeStatus, PeerLag, Topology


class Health(enum.StrEnum):
    """How the cluster is as a whole."""

    OK = "ok"
    """Every node is up."""
    DEGRADED = "degraded"
    """A node is missing or draining, and every shard has one that is up."""
    DOWN = "down"
    """A shard has no node that is up: its blocks cannot be read."""


def report(topology: Topology, nodes: Sequence[NodeStatus]) -> dict[str, Any]:
    """Return the report as the JSON object that `--json` prints; sizes in bytes, times in s."""
    ordered = sorted(nodes, key=lambda node: (node.info.zone, node.info.shard))
    shards = sorted({node.info.shard for node in nodes})
    return {
        "cluster": topology.cluster,
        "health": health(nodes).value,
        "epoch": topology.epoch,
        "zones": [
            {"zone": zone, **_sums(node for node in nodes if node.info.zone == zone)}
            for zone in topology.zones
        ],
        "shards": [
            {
                "shard": shard,
                "slots": topology.slots_by_shard.get(shard, 0),
                **_sums(node for node in nodes if node.info.shard == shard),
            }
            for shard in shards
        ],
        "nodes": [_node(node) for node in ordered],
        "namespaces": _namespaces(nodes),
        "total": _sums(nodes),
    }


def health(nodes: Iterable[NodeStatus]) -> Health:
    """Judge the cluster by the nodes that answer."""
    up_by_shard: dict[int, int] = {}
    all_up = True
    for node in nodes:
        up = node.reachable and node.info.state is not NodeState.DRAINING
        all_up &= up
        up_by_shard[node.info.shard] = up_by_shard.get(node.info.shard, 0) + up
    if not up_by_shard or not all(up_by_shard.values()):
        return Health.DOWN
    return Health.OK if all_up else Health.DEGRADED


def state_of(node: NodeStatus) -> str:
    """Return "up", "draining" or "down": what the node itself says, or that it does not answer."""
    if not node.reachable:
        return NodeState.DOWN.name.lower()
    state = NodeState.DRAINING if node.info.state is NodeState.DRAINING else NodeState.UP
    return state.name.lower()


def ratio(part: int, rest: int) -> float | None:
    """Return the share of `part` in the sum; None if there is nothing."""
    return part / (part + rest) if part + rest else None


def _sums(nodes: Iterable[NodeStatus]) -> dict[str, Any]:
    members = list(nodes)
    hits = sum(node.lookup_hits for node in members)
    misses = sum(node.lookup_misses for node in members)
    used = sum(node.used_bytes for node in members)
    arena = sum(node.arena_bytes for node in members)
    return {
        "nodes": len(members),
        "nodes_up": sum(state_of(node) == "up" for node in members),
        "blocks": sum(node.blocks for node in members),
        "used_bytes": used,
        "arena_bytes": arena,
        "fill": used / arena if arena else None,
        "lookup_hits": hits,
        "lookup_misses": misses,
        "hit_ratio": ratio(hits, misses),
    }


def _node(node: NodeStatus) -> dict[str, Any]:
    return {
        "name": node.info.name,
        "zone": node.info.zone,
        "shard": node.info.shard,
        "address": node.info.address,
        "state": state_of(node),
        "error": None if node.error is None else str(node.error),
        "incarnation": node.info.incarnation,
        "version": node.version,
        "uptime_s": node.uptime_s,
        "resident_bytes": node.resident_bytes,
        "pinned_bytes": node.pinned_bytes,
        "staged_bytes": node.staged_bytes,
        **{name: value for name, value in _sums([node]).items() if "nodes" not in name},
        "misses": dict(node.misses),
        "counters": dict(node.counters),
        "replication": [_peer(peer) for peer in node.peers],
    }


def _peer(peer: PeerLag) -> dict[str, Any]:
    return {
        "node": peer.node,
        "zone": peer.zone,
        "connected": peer.connected,
        "lag_entries": peer.lag_entries,
        "lag_bytes": peer.lag_bytes,
        "lag_s": peer.lag_s,
        "overflowed_entries": peer.overflowed_entries,
    }


def _namespaces(nodes: Iterable[NodeStatus]) -> list[dict[str, Any]]:
    sums: dict[str, Counter[str]] = {}
    for node in nodes:
        for use in node.namespaces:
            sums.setdefault(use.name, Counter()).update(
                blocks=use.blocks,
                used_bytes=use.used_bytes,
                lookup_hits=use.lookup_hits,
                lookup_misses=use.lookup_misses,
            )
    return [
        {"name": name, **use, "hit_ratio": ratio(use["lookup_hits"], use["lookup_misses"])}
        for name, use in sorted(sums.items())
    ]
