"""Waiting for what happens soon but not at once: with a deadline, and a reason on failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

ResultT = TypeVar("ResultT")

DEADLINE_S: Final = 20.0
_POLL_S: Final = 0.02


def eventually(
    check: Callable[[], ResultT],
    what: str,
    *,
    holds: Callable[[ResultT], bool] = bool,
    deadline_s: float = DEADLINE_S,
) -> ResultT:
    """Return the first value of `check` for which `holds` is true.

    Raises:
        AssertionError: none was, until the deadline; the message has the last value.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        value = check()
        if holds(value):
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {deadline_s:g} s: {what}; last seen: {value!r}")
        time.sleep(_POLL_S)
