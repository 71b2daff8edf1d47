"""Lifecycle: draining, and how far a node says that it lags behind."""

from __future__ import annotations

import pytest

from kvorum.core.errors import DrainingError
from kvorum.node.clock import Clock
from kvorum.node.lifecycle import Identity, Lifecycle
from kvorum.placement import ClusterFile
from tests.unit.node.stand import Time

FILE = ClusterFile.local(1, 1, [7000], bytes(32), "p" * 16, "a" * 16)


def made() -> tuple[Lifecycle, Time]:
    time = Time()
    return Lifecycle(Identity(FILE.map.members[0], 9, FILE.digest()), Clock(time)), time


def test_a_draining_node_takes_no_new_work() -> None:
    lifecycle, _ = made()
    lifecycle.require_serving()
    lifecycle.draining = True
    with pytest.raises(DrainingError) as caught:
        lifecycle.require_serving()
    assert caught.value.retryable


def test_staleness_is_the_age_of_the_oldest_that_is_announced_and_not_here() -> None:
    lifecycle, time = made()
    now_ms = Clock(time).now_ms()
    assert lifecycle.answerer().staleness_ms == 0
    lifecycle.announced("b", now_ms - 500)
    lifecycle.announced("c", now_ms - 200)
    time.pass_ms(100)
    assert lifecycle.answerer().staleness_ms == 600
    lifecycle.caught_up("b")
    assert lifecycle.answerer().staleness_ms == 300
    lifecycle.caught_up("c")
    lifecycle.caught_up("c")
    assert lifecycle.answerer().staleness_ms == 0


def test_a_time_that_cannot_be_right_does_not_break_the_answer() -> None:
    lifecycle, time = made()
    lifecycle.announced("b", 0)
    assert lifecycle.answerer().staleness_ms == 2**32 - 1
    lifecycle.announced("b", Clock(time).now_ms() + 5_000)
    assert lifecycle.answerer().staleness_ms == 0


def test_a_node_names_itself() -> None:
    answerer = made()[0].answerer()
    assert (answerer.node, answerer.zone, answerer.incarnation) == ("kvorum-a-0", "a", 9)
