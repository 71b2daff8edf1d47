"""View: the cluster map and the namespace as the client knows them; from messages to values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kvorum.client.nodes import NodeInfo, NodeState, Topology
from kvorum.core import limits
from kvorum.core.errors import InternalError, KvorumError, NamespaceConflictError, shown
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import SALT_BYTES, Chain, Tokens, chain
from kvorum.placement import ClusterMap, Member, SlotMap, SlotRun
from kvorum.v1 import cluster_pb2, namespace_pb2

_DIGEST_BYTES: Final = 32
STATES: Final = {int(state): state for state in NodeState}


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive blocks of a prompt that share a slot.

    Attributes:
        begin: first block.
        end: one past the last block.
        slot: their slot.
        replicas: the nodes that should hold them, nearest first.
    """

    begin: int
    end: int
    slot: int
    replicas: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class View:
    """What every call needs to know.

    Attributes:
        map: members and slots.
        map_digest: digest on which all members agree.
        zone: the client's own zone; None if it has none.
        namespace: name of the namespace.
        fingerprint: the client's fingerprint.
        fingerprint_digest: its digest.
        salt: salt of the tenant's keys.
        replicas: zones that hold each block.
    """

    map: ClusterMap
    map_digest: bytes
    zone: str | None
    namespace: str
    fingerprint: Fingerprint
    fingerprint_digest: bytes
    salt: bytes = field(repr=False)
    replicas: int

    def chain(self, tokens: Tokens) -> Chain:
        """Return the keys of a prompt.

        Raises:
            InvalidArgumentError: see `kvorum.core.keys.token_array`.
        """
        return chain(self.fingerprint, self.salt, tokens)

    def replicas_of(self, slot: int) -> tuple[Member, ...]:
        """Return the nodes that should hold a slot, nearest first."""
        return self.map.nearest(self.map.replicas(slot, self.replicas), self.zone)

    def store_order(self, slot: int) -> tuple[Member, ...]:
        """Return the nodes that a store of a slot is offered to, one after the other.

        The nearest comes first, except for parts: those of all ranks must meet at one node, and a
        rank may be in another zone than the next.
        """
        if self.fingerprint.parts > 1:
            return self.map.replicas(slot, self.replicas)
        return self.replicas_of(slot)

    def segments(self, keys: Chain, begin: int = 0) -> tuple[Segment, ...]:
        """Return the segments of a prompt's blocks from `begin` on."""
        size, count = keys.blocks_per_segment, len(keys.keys)
        starts = [begin, *range(begin - begin % size + size, count, size)] if begin < count else []
        return tuple(
            Segment(start, min(start - start % size + size, count), slot, self.replicas_of(slot))
            for start, slot in ((start, keys.slot(start)) for start in starts)
        )


def choose_map(
    answers: Sequence[cluster_pb2.GetTopologyResponse],
) -> cluster_pb2.GetTopologyResponse:
    """Return the map on which most of the nodes that answered agree, else the latest, else any.

    A node that strayed here from another cluster must not lead a client away from its own.
    """
    votes = Counter(answer.map_digest for answer in answers)
    return max(answers, key=lambda answer: (votes[answer.map_digest], answer.epoch))


def parse_map(answer: cluster_pb2.GetTopologyResponse) -> ClusterMap:
    """Return the cluster map that a node sent.

    Raises:
        InternalError: it is no map.
    """
    if len(answer.map_digest) != _DIGEST_BYTES:
        raise InternalError("the node sent no digest of its map", field="map_digest")
    try:
        return ClusterMap(
            cluster=answer.cluster,
            epoch=answer.epoch,
            members=tuple(Member(m.name, m.zone, m.shard, m.address) for m in answer.members),
            slots=SlotMap.from_runs(SlotRun(run.count, run.shard) for run in answer.slots),
        )
    except KvorumError as error:
        raise InternalError(
            f"the node sent a map that is none: {error}", field="topology"
        ) from error


def to_topology(answer: cluster_pb2.GetTopologyResponse) -> Topology:
    """Return the cluster map as a value for people and tools.

    Raises:
        InternalError: it is no map.
    """
    counts: Counter[int] = Counter()
    for run in answer.slots:
        counts[run.shard] += run.count
    parse_map(answer)
    return Topology(
        cluster=answer.cluster,
        epoch=answer.epoch,
        map_digest=answer.map_digest,
        nodes=tuple(to_node_info(member) for member in answer.members),
        slots_by_shard=dict(sorted(counts.items())),
        answered_by=answer.answerer.node,
    )


def to_node_info(member: cluster_pb2.Member) -> NodeInfo:
    """Return a member as a value for people and tools."""
    return NodeInfo(
        name=member.name,
        zone=member.zone,
        shard=member.shard,
        address=member.address,
        state=STATES.get(member.state, NodeState.UNKNOWN),
        incarnation=member.incarnation,
    )


def replicas_kept(policy: namespace_pb2.NamespacePolicy, zones: Sequence[str]) -> int:
    """Return in how many zones a namespace's blocks are kept."""
    return min(policy.replicas or limits.REPLICAS_DEFAULT, len(zones))


def check_namespace(answer: namespace_pb2.Namespace, fingerprint: Fingerprint) -> None:
    """Check that a namespace is one that a client with `fingerprint` can use.

    Raises:
        NamespaceConflictError: it has another fingerprint; the message names the first field.
        InternalError: the node sent no salt.
    """
    wanted = fingerprint_message(fingerprint)
    for name in Fingerprint.__slots__:
        theirs, ours = getattr(answer.fingerprint, name), getattr(wanted, name)
        if theirs != ours:
            raise NamespaceConflictError(
                f"{answer.name} exists with {name} {shown(theirs)}, not {shown(ours)}",
                field=f"fingerprint.{name}",
                limit="the fingerprint with which the namespace was made",
            )
    if len(answer.key_salt) != SALT_BYTES:
        raise InternalError("the node sent no salt", field="namespace.key_salt")


def fingerprint_message(fingerprint: Fingerprint) -> namespace_pb2.Fingerprint:
    """Return a fingerprint as it travels."""
    return namespace_pb2.Fingerprint(
        **{name: getattr(fingerprint, name) for name in Fingerprint.__slots__}
    )
