"""Health: what this client has learned about each node from talking with it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kvorum.client.breaker import Breaker
from kvorum.client.hedge import LatencyTracker
from kvorum.client.settings import ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.core.errors import (
    DeadlineError,
    DrainingError,
    IncarnationError,
    KvorumError,
    UnavailableError,
)
from kvorum.v1 import common_pb2

_LOG: Final = logging.getLogger(__name__)

_DRAINING_S: Final = 2.0


@dataclass(slots=True)
class NodeHealth:
    """One node.

    Attributes:
        name: name of the node.
        breaker: whether it is worth asking.
        lookups: how long its lookups take.
        reads: how long the first frames of its gets take.
        incarnation: its birth number; 0 if it never answered.
        draining_until: when to try to store there again, in seconds of the client's clock.
    """

    name: str
    breaker: Breaker
    lookups: LatencyTracker
    reads: LatencyTracker
    incarnation: int = 0
    draining_until: float = field(default=0.0)


class Health:
    """All nodes, by name.

    Args:
        settings: thresholds.
        stats: counts errors and openings.
    """

    def __init__(self, settings: ClientSettings, stats: ClientStats) -> None:
        self._settings = settings
        self._stats = stats
        self._nodes: dict[str, NodeHealth] = {}

    def of(self, name: str) -> NodeHealth:
        """Return what is known about a node."""
        node = self._nodes.get(name)
        if node is None:
            settings = self._settings
            node = self._nodes[name] = NodeHealth(
                name,
                Breaker(settings),
                lookups=LatencyTracker(settings, settings.hedge_lookup_s),
                reads=LatencyTracker(settings, settings.hedge_fetch_s),
            )
        return node

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget all other nodes."""
        for name in self._nodes.keys() - set(names):
            del self._nodes[name]

    def allows(self, name: str) -> bool:
        """Return whether calls may go to a node."""
        return self.of(name).breaker.allows

    def answered(self, name: str, answerer: common_pb2.Answerer) -> None:
        """Take an answer, and check that it comes from the node that was asked, in this life.

        Raises:
            IncarnationError: another node answers at this address, or an earlier life of the node.
        """
        node = self.of(name)
        if answerer.node != name:
            raise IncarnationError(f"{answerer.node} answers where {name} was asked")
        if answerer.incarnation < node.incarnation:
            raise IncarnationError(
                f"{name} answers with the incarnation {answerer.incarnation} after "
                f"{node.incarnation}"
            )
        if node.incarnation and answerer.incarnation > node.incarnation:
            _LOG.info("node was born again: node=%s incarnation=%d", name, answerer.incarnation)
        node.incarnation = answerer.incarnation
        node.breaker.success()

    def failed(self, name: str, error: KvorumError, now: float) -> None:
        """Take a failed call; most errors that a node itself reports show that it lives."""
        node = self.of(name)
        self._stats.errors[type(error).__name__] += 1
        if isinstance(error, UnavailableError | IncarnationError):
            opens = node.breaker.opens
            node.breaker.failure(now)
            self._note_open(node, opens)
        elif isinstance(error, DeadlineError):
            self.late(name)
        else:
            node.breaker.success()
        if isinstance(error, DrainingError):
            node.draining_until = now + _DRAINING_S

    def late(self, name: str) -> None:
        """A node did not answer while its answer would have been of use."""
        self.of(name).breaker.timeout()

    def stalled(self, name: str) -> None:
        """A transfer from or to a node made no progress for long."""
        self.of(name).breaker.stall()

    def doubted(self, name: str) -> bool:
        """Return whether a node is better asked after the other replicas."""
        return self.of(name).breaker.doubted

    def probed(self, name: str, now: float, *, answered: bool) -> None:
        """A probe of a node was answered, or was not."""
        node = self.of(name)
        opens, closed = node.breaker.opens, not node.breaker.allows
        node.breaker.probe_ended(now, answered=answered)
        self._note_open(node, opens)
        if closed and node.breaker.allows:
            _LOG.info("node answers again: node=%s", name)

    def _note_open(self, node: NodeHealth, opens_before: int) -> None:
        if node.breaker.opens > opens_before:
            self._stats.breaker_opens += 1
            _LOG.warning("breaker opened: node=%s", node.name)

    def probes_due(self, now: float) -> list[str]:
        """Return the nodes to probe now."""
        return [node.name for node in self._nodes.values() if node.breaker.probe_due(now)]
