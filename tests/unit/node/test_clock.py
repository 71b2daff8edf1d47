"""Clock: milliseconds that never go back."""

from __future__ import annotations

from kvorum.node.clock import Clock


def test_time_is_in_whole_milliseconds() -> None:
    assert Clock(lambda: 1_999_999).now_ms() == 1


def test_time_that_runs_backwards_stands_still() -> None:
    times = iter([5_000_000, 3_000_000, 4_000_000, 6_000_000])
    clock = Clock(lambda: next(times))
    assert [clock.now_ms() for _ in range(4)] == [5, 5, 5, 6]
