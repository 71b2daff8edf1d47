"""Membership: which members answer, and which life of each it is.

It remembers what heartbeats found; it sends none. A member that has not answered for
`down_after_ms` is down; before that, one lost heartbeat changes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kvorum.core.errors import IncarnationError
from kvorum.node.clock import Clock
from kvorum.placement import ClusterMap


class MemberState(enum.IntEnum):
    """Health of a member; numbers equal `kvorum.v1.MemberState`."""

    UNKNOWN = 0
    UP = 1
    DOWN = 2
    DRAINING = 3


@dataclass(slots=True)
class _Member:
    heard_ms: int
    incarnation: int = 0
    draining: bool = False


class Membership:
    """What this node thinks of the other members.

    Args:
        cluster_map: all members.
        own_name: the member that this node is.
        clock: time.
        down_after_ms: how long a member may be silent.
    """

    def __init__(
        self, cluster_map: ClusterMap, own_name: str, clock: Clock, down_after_ms: int
    ) -> None:
        self._clock = clock
        self._down_after_ms = down_after_ms
        born_ms = clock.now_ms()
        self._members = {
            member.name: _Member(born_ms)
            for member in cluster_map.members
            if member.name != own_name
        }

    def heard(self, name: str, incarnation: int, *, draining: bool) -> bool:
        """Note that a member answered; return whether it was born again since.

        Raises:
            IncarnationError: a later life of that member was heard before; this one is a ghost.
        """
        born_again = self.called(name, incarnation, draining=draining)
        self._members[name].heard_ms = self._clock.now_ms()
        return born_again

    def called(self, name: str, incarnation: int, *, draining: bool) -> bool:
        """Note that a member called; return whether it was born again since.

        It does not count as an answer: a member that can call and cannot be called serves nobody.

        Raises:
            IncarnationError: a later life of that member was heard before; this one is a ghost.
        """
        self.require_current(name, incarnation)
        member = self._members[name]
        born_again = incarnation > member.incarnation
        member.incarnation = incarnation
        member.draining = draining
        return born_again

    def require_current(self, name: str, incarnation: int) -> None:
        """Check that a member speaks in its latest life.

        Raises:
            IncarnationError: a later life of it was heard before; this one is a ghost.
        """
        latest = self._members[name].incarnation
        if incarnation < latest:
            raise IncarnationError(
                f"{name} has the incarnation {latest} by now",
                field="caller.incarnation",
                limit=f"at least {latest}",
            )

    def knows(self, name: str) -> bool:
        """Return whether `name` is another member of the cluster."""
        return name in self._members

    def incarnation(self, name: str) -> int:
        """Return a member's birth number; 0 if it was never heard."""
        return self._members[name].incarnation

    def state(self, name: str) -> MemberState:
        """Return what this node thinks of a member; UNKNOWN until it could have answered."""
        member = self._members[name]
        if self._clock.now_ms() - member.heard_ms > self._down_after_ms:
            return MemberState.DOWN
        if not member.incarnation:
            return MemberState.UNKNOWN
        return MemberState.DRAINING if member.draining else MemberState.UP
