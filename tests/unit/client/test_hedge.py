"""Hedging: the delay follows the node's own speed, and hedges stay within their budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.client.hedge import HedgeBudget, LatencyTracker
from kvorum.client.settings import ClientSettings

SETTINGS = ClientSettings(hedge_min_s=0.001, hedge_max_s=0.1)


def test_a_node_that_was_not_measured_has_the_initial_delay() -> None:
    tracker = LatencyTracker(SETTINGS, 0.002)
    for _ in range(7):
        tracker.add(1.0)
    assert tracker.hedge_delay_s == 0.002


def test_the_delay_is_what_five_of_a_hundred_answers_exceed() -> None:
    tracker = LatencyTracker(SETTINGS, 0.002)
    for at in range(128):
        tracker.add(0.020 if at % 32 == 0 else 0.010)  # 3 % are slow
    assert tracker.hedge_delay_s == 0.010
    for at in range(128):
        tracker.add(0.020 if at % 10 == 0 else 0.010)  # 10 % are
    assert tracker.hedge_delay_s == 0.020


@pytest.mark.parametrize(("seconds", "delay"), [(0.0, 0.001), (5.0, 0.1)])
def test_the_delay_has_bounds(seconds: float, delay: float) -> None:
    tracker = LatencyTracker(SETTINGS, 0.002)
    for _ in range(64):
        tracker.add(seconds)
    assert tracker.hedge_delay_s == delay


def test_the_past_is_forgotten() -> None:
    tracker = LatencyTracker(SETTINGS, 0.002)
    for seconds in [0.05] * 128 + [0.01] * 128:
        tracker.add(seconds)
    assert tracker.hedge_delay_s == 0.01


@given(
    st.lists(st.booleans(), max_size=400),
    st.sampled_from([0.0, 0.01, 0.05, 0.2]),
    st.integers(0, 5),
)
def test_hedges_are_at_most_the_share_and_the_burst(
    wishes: list[bool], share: float, burst: int
) -> None:
    budget = HedgeBudget(ClientSettings(hedge_budget=share, hedge_burst=burst))
    hedges = 0
    for first, wants in enumerate(wishes, start=1):
        budget.earn()
        hedges += wants and budget.spend()
        assert hedges <= share * first + burst + 1e-9


def test_the_budget_comes_back() -> None:
    budget = HedgeBudget(ClientSettings(hedge_budget=0.25, hedge_burst=1))
    assert budget.spend()
    assert not budget.spend()
    for _ in range(4):
        budget.earn()
    assert budget.spend()
