"""Breaker: whether a node is worth asking. Pure: `now` is an argument, in seconds.

    closed --too many failures or late answers in a row--> open
    open --the wait is over--> half-open: one probe, in the background, decides
    half-open --it answers--> closed        half-open --it does not--> open, for twice as long

Callers never wait for a probe: while the breaker is not closed, the node is simply not asked.
"""

from __future__ import annotations

import enum

from kvorum.client.settings import ClientSettings


class BreakerState(enum.Enum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """The breaker of one node.

    Attributes:
        state: where it stands.
        opens: times that it opened from closed.

    Args:
        settings: thresholds and waits.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.state = BreakerState.CLOSED
        self.opens = 0
        self._settings = settings
        self._failures = 0
        self._timeouts = 0
        self._wait_s = settings.breaker_open_s
        self._probe_at = 0.0

    @property
    def allows(self) -> bool:
        """Whether calls may go to the node."""
        return self.state is BreakerState.CLOSED

    @property
    def suspect(self) -> bool:
        """Whether the last call to the node failed or came late, though calls still go there."""
        return self.allows and self._failures + self._timeouts > 0

    def success(self) -> None:
        """The node answered in time; a refusal is an answer too."""
        self.state = BreakerState.CLOSED
        self._failures = self._timeouts = 0
        self._wait_s = self._settings.breaker_open_s

    def failure(self, now: float) -> None:
        """The connection failed or broke."""
        self._failures += 1
        if self.allows and self._failures >= self._settings.breaker_failures:
            self._open(now)

    def timeout(self, now: float) -> None:
        """The answer came too late to be of use, or never."""
        self._timeouts += 1
        if self.allows and self._timeouts >= self._settings.breaker_timeouts:
            self._open(now)

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.opens += 1
        self._probe_at = now + self._wait_s

    def probe_due(self, now: float) -> bool:
        """Return whether to probe the node now."""
        return self.state is BreakerState.OPEN and now >= self._probe_at

    def probe_started(self) -> None:
        """A probe was sent; `success` or `probe_failed` must follow."""
        self.state = BreakerState.HALF_OPEN

    def probe_failed(self, now: float) -> None:
        """The probe failed: wait twice as long before the next one."""
        self.state = BreakerState.OPEN
        self._wait_s = min(self._wait_s * 2, self._settings.breaker_open_max_s)
        self._probe_at = now + self._wait_s
