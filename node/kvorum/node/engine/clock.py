"""Time as the engine knows it: the event being handled, and the hybrid logical clock.

The hybrid logical clock (Kulkarni et al., 2014) orders stores and deletes of different nodes:
48 bits of Unix milliseconds and 16 bits of counter, always later than every clock that was seen.
"""

from __future__ import annotations

from typing import Final

from kvorum.core.errors import InvalidArgumentError

COUNTER_BITS: Final = 16


class Clock:
    """When the present event happens.

    Attributes:
        now_ms: milliseconds since the Unix epoch; never decreases.
        stamp: number of the event, growing: what happens in one event happens at once.
    """

    __slots__ = ("_ahead_ms_max", "_last", "now_ms", "stamp")

    def __init__(self, ahead_ms_max: int) -> None:
        self.now_ms = 0
        self.stamp = 0
        self._ahead_ms_max = ahead_ms_max
        self._last = 0

    def advance(self, now_ms: int) -> None:
        """Begin an event at `now_ms`; time that ran backwards stands still instead."""
        self.now_ms = max(self.now_ms, now_ms)
        self.stamp += 1

    def tick(self) -> int:
        """Return a hybrid time later than all before."""
        self._last = max(self._last + 1, self.now_ms << COUNTER_BITS)
        return self._last

    def observe(self, hybrid: int) -> None:
        """Let later ticks be later than a peer's `hybrid` time.

        Raises:
            InvalidArgumentError: it is so far ahead that the peer's clock must be wrong; following
                it would make our own times wrong too, and all that follow from them.
        """
        ahead_ms = (hybrid >> COUNTER_BITS) - self.now_ms
        if hybrid <= 0 or ahead_ms > self._ahead_ms_max:
            raise InvalidArgumentError(
                f"the clock {hybrid} is {ahead_ms} ms ahead",
                field="clock",
                limit=f"1 to {self._ahead_ms_max} ms ahead",
            )
        self._last = max(self._last, hybrid)
