"""Breaker: it opens for dead nodes, not for slow ones, and closes when a probe is answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.client.breaker import Breaker, BreakerState
from kvorum.client.settings import ClientSettings

SETTINGS = ClientSettings(
    breaker_failures=3, breaker_timeouts=2, breaker_open_s=1.0, breaker_open_max_s=3.0
)


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(SETTINGS)


def open_up(breaker: Breaker, now: float) -> None:
    for _ in range(SETTINGS.breaker_failures):
        breaker.failure(now)


def test_it_opens_after_failures_in_a_row_and_not_before(breaker: Breaker) -> None:
    breaker.failure(0.0)
    breaker.failure(0.0)
    breaker.success()
    breaker.failure(0.0)
    breaker.failure(0.0)
    assert breaker.opens == 0
    breaker.failure(0.0)
    assert breaker.opens == 1
    assert not breaker.allows


def test_late_answers_alone_never_stop_calls(breaker: Breaker) -> None:
    for _ in range(100):
        breaker.timeout()
    assert breaker.state is BreakerState.DOUBTED
    assert breaker.allows


def test_one_transfer_that_stalls_is_reason_for_doubt(breaker: Breaker) -> None:
    breaker.stall()
    assert breaker.doubted
    assert breaker.allows
    assert breaker.probe_due(0.0)
    breaker.success()
    assert not breaker.doubted


@pytest.mark.parametrize(("answered", "state"), [(True, "closed"), (False, "open")])
def test_a_probe_decides_about_a_doubted_node(breaker: Breaker, answered: bool, state: str) -> None:
    assert not breaker.probe_due(0.0)
    breaker.timeout()
    assert not breaker.probe_due(0.0)
    breaker.timeout()
    assert breaker.probe_due(0.0)
    breaker.probe_started()
    assert not breaker.probe_due(0.0), "one probe at a time"
    assert breaker.allows
    breaker.probe_ended(0.5, answered=answered)
    assert breaker.state.value == state


def test_probes_of_an_open_breaker_come_ever_more_rarely_up_to_a_limit(breaker: Breaker) -> None:
    open_up(breaker, 10.0)
    now, waits = 10.0, []
    for _ in range(4):
        start = now
        while not breaker.probe_due(now):
            now += 0.25
        waits.append(now - start)
        breaker.probe_started()
        assert breaker.state is BreakerState.HALF_OPEN
        assert not breaker.allows
        breaker.probe_ended(now, answered=False)
    assert waits == [1.0, 2.0, 3.0, 3.0]


def test_after_an_answer_the_waits_are_short_again(breaker: Breaker) -> None:
    open_up(breaker, 0.0)
    breaker.probe_started()
    breaker.probe_ended(1.0, answered=False)
    breaker.probe_started()
    breaker.probe_ended(5.0, answered=True)
    assert breaker.state is BreakerState.CLOSED
    assert not breaker.suspect
    open_up(breaker, 6.0)
    assert not breaker.probe_due(6.9)
    assert breaker.probe_due(7.0)


def test_an_answer_that_overtakes_its_probe_closes_too(breaker: Breaker) -> None:
    open_up(breaker, 0.0)
    breaker.probe_started()
    breaker.success()
    breaker.probe_ended(2.0, answered=False)
    assert breaker.state is BreakerState.CLOSED


@given(st.lists(st.sampled_from(["success", "failure", "timeout", "probe", "lost", "tick"])))
def test_it_always_comes_back_once_the_node_answers(steps: list[str]) -> None:
    """Whatever happened, a node that answers again is asked again within the longest wait."""
    breaker, now = Breaker(SETTINGS), 0.0
    for step in steps:
        match step:
            case "success":
                breaker.success()
            case "failure":
                breaker.failure(now)
            case "timeout":
                breaker.timeout()
            case "tick":
                now += 1.0
            case _:
                if breaker.probe_due(now):
                    breaker.probe_started()
                    breaker.probe_ended(now, answered=step == "probe")
    now += SETTINGS.breaker_open_max_s
    if breaker.probe_due(now):
        breaker.probe_started()
        breaker.probe_ended(now, answered=True)
    assert breaker.allows
