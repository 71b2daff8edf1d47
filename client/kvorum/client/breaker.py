"""Breaker: whether a node is worth asking. Pure: `now` is an argument, in seconds.

    closed --connections fail, several in a row--> open
    closed --answers come late, several in a row, or a transfer stalls--> doubted: a probe decides
    doubted --the probe is answered--> closed      doubted --it is not--> open
    open --the wait is over--> half-open: a probe decides
    half-open --the probe is answered--> closed    half-open --it is not--> open, twice as long

Probes run in the background, with more time than a lookup has: a machine that is merely busy is
not taken for a dead one, and no caller waits for a probe. A doubted node is asked after the other
replicas; while the breaker is open or half-open the node is not asked.
"""

from __future__ import annotations

import enum

from kvorum.client.settings import ClientSettings


class BreakerState(enum.Enum):
    """Where a breaker stands."""

    CLOSED = "closed"
    DOUBTED = "doubted"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """The breaker of one node.

    Attributes:
        state: where it stands.
        opens: times that calls to the node were stopped.

    Args:
        settings: thresholds and waits.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.state = BreakerState.CLOSED
        self.opens = 0
        self._settings = settings
        self._failures = 0
        self._timeouts = 0
        self._probing = False
        self._wait_s = settings.breaker_open_s
        self._probe_at = 0.0

    @property
    def allows(self) -> bool:
        """Whether calls may go to the node."""
        return self.state in (BreakerState.CLOSED, BreakerState.DOUBTED)

    @property
    def suspect(self) -> bool:
        """Whether the last call to the node failed or came late, though calls still go there."""
        return self.allows and self._failures + self._timeouts > 0

    @property
    def doubted(self) -> bool:
        """Whether the node is better asked after others."""
        return self.state is BreakerState.DOUBTED

    def success(self) -> None:
        """The node answered; a refusal is an answer too."""
        self.state = BreakerState.CLOSED
        self._failures = self._timeouts = 0
        self._wait_s = self._settings.breaker_open_s

    def failure(self, now: float) -> None:
        """The connection failed or broke."""
        self._failures += 1
        if self.allows and self._failures >= self._settings.breaker_failures:
            self._open(now)

    def timeout(self) -> None:
        """The answer came too late to be of use, or never."""
        self._timeouts += 1
        if self._timeouts >= self._settings.breaker_timeouts:
            self._doubt()

    def stall(self) -> None:
        """A transfer made no progress for long."""
        self._timeouts += 1
        self._doubt()

    def _doubt(self) -> None:
        if self.state is BreakerState.CLOSED:
            self.state = BreakerState.DOUBTED

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.opens += 1
        self._probe_at = now + self._wait_s

    def probe_due(self, now: float) -> bool:
        """Return whether to probe the node now."""
        if self._probing:
            return False
        waited = self.state is BreakerState.OPEN and now >= self._probe_at
        return waited or self.state is BreakerState.DOUBTED

    def probe_started(self) -> None:
        """A probe was sent; `probe_ended` must follow."""
        self._probing = True
        if self.state is BreakerState.OPEN:
            self.state = BreakerState.HALF_OPEN

    def probe_ended(self, now: float, *, answered: bool) -> None:
        """The probe was answered, or was not in time."""
        self._probing = False
        if answered:
            self.success()
        elif self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN
            self._wait_s = min(self._wait_s * 2, self._settings.breaker_open_max_s)
            self._probe_at = now + self._wait_s
        elif self.state is BreakerState.DOUBTED:
            self._open(now)
