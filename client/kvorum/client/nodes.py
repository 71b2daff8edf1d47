"""What the client knows of the cluster's nodes, as values for people and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvorum.client.wireenum import WireEnum
from kvorum.core.errors import KvorumError


class NodeState(WireEnum):
    """Health of a node; numbers equal `kvorum.v1.MemberState`."""

    UNKNOWN = 0
    UP = 1
    DOWN = 2
    DRAINING = 3


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One member of the cluster.

    Attributes:
        name: name, unique in the cluster.
        zone: availability zone.
        shard: shard that it serves.
        address: host:port of its gRPC server.
        state: what the node that answered thinks of it.
        incarnation: its birth number, as far as the node that answered knows; 0 if never seen.
    """

    name: str
    zone: str
    shard: int
    address: str
    state: NodeState
    incarnation: int


@dataclass(frozen=True, slots=True)
class Topology:
    """The cluster map.

    Attributes:
        cluster: name of the cluster.
        epoch: version of the slot map.
        map_digest: digest on which all members agree, 32 bytes.
        nodes: all members.
        slots_by_shard: slots that each shard owns.
        answered_by: name of the node that said so.
    """

    cluster: str
    epoch: int
    map_digest: bytes
    nodes: tuple[NodeInfo, ...]
    slots_by_shard: Mapping[int, int]
    answered_by: str

    @property
    def zones(self) -> tuple[str, ...]:
        """All zones, sorted."""
        return tuple(sorted({node.zone for node in self.nodes}))


@dataclass(frozen=True, slots=True)
class PeerLag:
    """The pipe from a node to one of its peers.

    Attributes:
        node: name of the peer.
        zone: zone of the peer.
        connected: whether the pipe is connected.
        lag_entries: entries that the peer has not acknowledged.
        lag_bytes: bytes that the peer has not acknowledged.
        lag_s: age of the oldest entry that the peer has not acknowledged, in seconds.
        overflowed_entries: entries that the bounded queue had to let go.
    """

    node: str
    zone: str
    connected: bool
    lag_entries: int
    lag_bytes: int
    lag_s: float
    overflowed_entries: int


@dataclass(frozen=True, slots=True)
class NamespaceUse:
    """A namespace on one node; hits and misses in blocks that lookups asked for."""

    name: str
    blocks: int
    used_bytes: int
    lookup_hits: int
    lookup_misses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """State of one node; all numbers are 0 if it did not answer.

    Attributes:
        info: which node.
        error: why it did not answer; None if it did.
        breaker: state of this client's breaker: "closed", "doubted", "open" or "half-open".
        uptime_s: seconds since its birth.
        version: version of Kvorum that it runs.
        arena_bytes: bytes of the arena.
        used_bytes: bytes of the arena that are occupied.
        pinned_bytes: bytes under pins.
        staged_bytes: bytes of stores that are not visible yet.
        resident_bytes: resident memory of the process.
        blocks: blocks that are visible.
        lookup_hits: blocks that lookups asked for and that were present.
        lookup_misses: blocks that lookups asked for and that were not present.
        misses: misses by reason.
        counters: everything else that is counted, by name.
        peers: the pipes to the peers of its shard.
        namespaces: the namespaces of the caller's tenant.
    """

    info: NodeInfo
    error: KvorumError | None = None
    breaker: str = "closed"
    uptime_s: float = 0.0
    version: str = ""
    arena_bytes: int = 0
    used_bytes: int = 0
    pinned_bytes: int = 0
    staged_bytes: int = 0
    resident_bytes: int = 0
    blocks: int = 0
    lookup_hits: int = 0
    lookup_misses: int = 0
    misses: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    peers: tuple[PeerLag, ...] = ()
    namespaces: tuple[NamespaceUse, ...] = ()

    @property
    def reachable(self) -> bool:
        """Whether the node answered."""
        return self.error is None
