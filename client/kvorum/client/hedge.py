"""Hedging: when to ask a second replica, and how often that is allowed. Pure.

A call that takes longer than 95 % of its kind is sent to a second replica too, and whichever
answers first counts. That would double the load just when the cluster is slow, so hedges are
paid for by first requests: 5 % of them, with a small burst.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kvorum.client.settings import ClientSettings

_SAMPLES: Final = 128
_SAMPLES_MIN: Final = 8
_RESORT_EVERY: Final = 8


class LatencyTracker:
    """How long a node's answers take, over the last 128.

    Args:
        settings: the quantile, and the bounds of a hedge's delay.
        initial_s: the delay until enough answers came.
    """

    def __init__(self, settings: ClientSettings, initial_s: float) -> None:
        self._settings = settings
        self._samples: deque[float] = deque(maxlen=_SAMPLES)
        self._added = 0
        self._delay_s = initial_s

    def add(self, seconds: float) -> None:
        """Take the time of one answer."""
        self._samples.append(seconds)
        self._added += 1
        if len(self._samples) >= _SAMPLES_MIN and self._added % _RESORT_EVERY == 0:
            ordered = sorted(self._samples)
            rank = min(int(len(ordered) * self._settings.hedge_quantile), len(ordered) - 1)
            low, high = self._settings.hedge_min_s, self._settings.hedge_max_s
            self._delay_s = min(max(ordered[rank], low), high)

    @property
    def hedge_delay_s(self) -> float:
        """Seconds after which an answer is slower than 95 % of them."""
        return self._delay_s


class HedgeBudget:
    """How many hedges may be sent: `hedge_budget` for each first request, plus a burst.

    Args:
        settings: share and burst.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._share = settings.hedge_budget
        self._burst = float(settings.hedge_burst)
        self._tokens = self._burst

    def earn(self) -> None:
        """A first request was sent."""
        self._tokens = min(self._tokens + self._share, max(self._burst, 1.0))

    def spend(self) -> bool:
        """Return whether a hedge may be sent now, and count it."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
