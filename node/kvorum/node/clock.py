"""Clock: the node's one source of time, drawn in `main` and handed to everything else."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Milliseconds since the Unix epoch that never go back, whatever the system's clock does.

    Args:
        unix_ns: returns nanoseconds since the Unix epoch.
    """

    def __init__(self, unix_ns: Callable[[], int] = time.time_ns) -> None:
        self._unix_ns = unix_ns
        self._last_ms = 0

    def now_ms(self) -> int:
        """Return the time in milliseconds; at least what the last call returned."""
        self._last_ms = max(self._last_ms, self._unix_ns() // 1_000_000)
        return self._last_ms
