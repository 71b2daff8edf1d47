"""The hybrid logical clock: later than everything seen, and never led astray."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.engine.clock import Clock

STEPS = st.lists(
    st.tuples(st.sampled_from(["advance", "tick", "observe"]), st.integers(0, 5_000)), max_size=60
)


@given(STEPS)
def test_a_tick_is_later_than_all_that_was_seen(steps: list[tuple[str, int]]) -> None:
    clock, latest, now_ms = Clock(1_000), 0, 0
    for step, number in steps:
        if step == "advance":
            clock.advance(number)
            now_ms = max(now_ms, number)
            assert clock.now_ms == now_ms
        elif step == "tick":
            tick = clock.tick()
            assert tick > latest
            assert tick >> 16 <= max(now_ms, latest >> 16) + 1
            latest = tick
        elif 0 < number <= now_ms + 1_000:
            clock.observe(number << 16)
            latest = max(latest, number << 16)
        else:
            with pytest.raises(InvalidArgumentError):
                clock.observe(number << 16)


def test_a_million_ticks_in_one_millisecond_still_grow() -> None:
    clock = Clock(0)
    clock.advance(5)
    ticks = [clock.tick() for _ in range(70_000)]
    assert ticks == list(range(5 << 16, (5 << 16) + 70_000))
