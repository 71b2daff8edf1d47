"""Lifecycle: who this node is, whether it takes new work, and how far it lags behind its peers."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.core.errors import DrainingError
from kvorum.node.clock import Clock
from kvorum.placement import Member
from kvorum.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is.

    Attributes:
        member: its place in the cluster map.
        incarnation: its birth number.
        map_digest: digest of the cluster file, 32 bytes.
    """

    member: Member
    incarnation: int
    map_digest: bytes


class Lifecycle:
    """The state of one node between birth and end.

    Attributes:
        identity: who it is.
        born_ms: Unix milliseconds of its birth.
        draining: whether it refuses new work.
    """

    def __init__(self, identity: Identity, clock: Clock) -> None:
        self.identity = identity
        self.born_ms = clock.now_ms()
        self.draining = False
        self._clock = clock
        self._announced_ms: dict[str, int] = {}

    def require_serving(self) -> None:
        """Check that new work is taken.

        Raises:
            DrainingError: the node is draining.
        """
        if self.draining:
            raise DrainingError(
                f"{self.identity.member.name} is draining",
                field="node",
                limit="another replica takes stores",
            )

    def announced(self, peer: str, happened_ms: int) -> None:
        """Note that a peer began to send something that happened at `happened_ms`."""
        self._announced_ms[peer] = happened_ms

    def caught_up(self, peer: str) -> None:
        """Note that all that a peer began to send is stored."""
        self._announced_ms.pop(peer, None)

    def answerer(self) -> common_pb2.Answerer:
        """Return how this node names itself in answers."""
        now_ms = self._clock.now_ms()
        oldest_ms = min(self._announced_ms.values(), default=now_ms)
        return common_pb2.Answerer(
            node=self.identity.member.name,
            zone=self.identity.member.zone,
            incarnation=self.identity.incarnation,
            staleness_ms=min(max(now_ms - oldest_ms, 0), 2**32 - 1),
        )
