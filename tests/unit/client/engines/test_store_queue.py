"""Goal: the background store is bounded, counts everything, and hides no failure.

Method: jobs that wait for an event, so that the queue is full or idle when the test says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from kvorum.client import StoredBlock, StoreOutcome, StoreResult
from kvorum.client.engines.store_queue import StoreJob, StoreQueue
from kvorum.core.errors import InternalError, InvalidArgumentError, OverloadedError

WAIT_S = 20.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that blocked jobs wait for, set at the end whatever happens."""
    event = threading.Event()
    yield event
    event.set()


def result(*outcomes: StoreOutcome) -> StoreResult:
    return StoreResult(tuple(StoredBlock(at, outcome) for at, outcome in enumerate(outcomes)))


def blocked(
    gate: threading.Event, started: threading.Event | None = None
) -> Callable[[], StoreResult]:
    def run() -> StoreResult:
        if started is not None:
            started.set()
        assert gate.wait(WAIT_S)
        return result(StoreOutcome.STORED)

    return run


def test_outcomes_are_counted_block_by_block() -> None:
    queue = StoreQueue(4, 100)
    outcomes = (StoreOutcome.STORED, StoreOutcome.STORED, StoreOutcome.ALREADY_STORED)
    assert queue.submit(StoreJob(lambda: result(*outcomes), 10, 3))
    error = OverloadedError("full")
    refused = StoreResult((StoredBlock(0, StoreOutcome.REFUSED, error),))
    assert queue.submit(StoreJob(lambda: refused, 10, 1))
    assert queue.submit(StoreJob(lambda: result(StoreOutcome.STAGED), 10, 1))
    assert queue.flush(WAIT_S)
    stats = queue.stats
    assert (stats.queued, stats.stored, stats.already_stored) == (5, 2, 1)
    assert (stats.staged, stats.refused, stats.dropped) == (1, 1, 0)
    assert stats.failures == {"OverloadedError": 1}
    assert queue.close(WAIT_S)


def test_a_full_queue_drops_and_counts(gate: threading.Event) -> None:
    queue = StoreQueue(2, 1000)
    assert queue.submit(StoreJob(blocked(gate), 1, 1))
    assert queue.submit(StoreJob(blocked(gate), 1, 1))
    assert not queue.submit(StoreJob(blocked(gate), 1, 7))
    assert queue.stats.dropped == 7
    assert not queue.flush(0.01)
    gate.set()
    assert queue.flush(WAIT_S)
    assert queue.submit(StoreJob(blocked(gate), 1, 1))
    assert queue.close(WAIT_S)


def test_bytes_are_bounded_too(gate: threading.Event) -> None:
    queue = StoreQueue(10, 100)
    assert queue.submit(StoreJob(blocked(gate), 60, 1))
    assert not queue.submit(StoreJob(blocked(gate), 41, 1))
    assert queue.submit(StoreJob(blocked(gate), 40, 1))
    assert not queue.submit(StoreJob(blocked(gate), 1, 1))
    gate.set()
    assert queue.flush(WAIT_S)
    assert queue.submit(StoreJob(blocked(gate), 100, 1))
    assert queue.close(WAIT_S)


def test_an_error_of_the_cluster_is_counted_and_the_next_job_runs() -> None:
    def fail() -> StoreResult:
        raise OverloadedError("the arena is full")

    queue = StoreQueue(4, 100)
    assert queue.submit(StoreJob(fail, 1, 3))
    assert queue.submit(StoreJob(lambda: result(StoreOutcome.STORED), 1, 1))
    assert queue.flush(WAIT_S)
    assert (queue.stats.refused, queue.stats.stored) == (3, 1)
    assert queue.stats.failures == {"OverloadedError": 1}
    assert queue.close(WAIT_S)


def test_a_defect_is_raised_by_flush_and_close_and_nothing_runs_after_it(
    gate: threading.Event,
) -> None:
    def defect() -> StoreResult:
        assert gate.wait(WAIT_S)
        raise ZeroDivisionError("a defect")

    queue = StoreQueue(4, 100)
    assert queue.submit(StoreJob(defect, 1, 1))
    assert queue.submit(StoreJob(lambda: result(StoreOutcome.STORED), 1, 2))
    gate.set()
    with pytest.raises(InternalError, match="ZeroDivisionError: a defect"):
        queue.flush(WAIT_S)
    assert not queue.submit(StoreJob(lambda: result(StoreOutcome.STORED), 1, 5))
    assert (queue.stats.stored, queue.stats.dropped) == (0, 7)
    with pytest.raises(InternalError):
        queue.close(WAIT_S)


def test_close_runs_what_is_queued_and_takes_no_more(gate: threading.Event) -> None:
    gate.set()
    queue = StoreQueue(4, 100)
    for _ in range(3):
        assert queue.submit(StoreJob(blocked(gate), 1, 1))
    assert queue.close(WAIT_S)
    assert queue.stats.stored == 3
    assert not queue.submit(StoreJob(blocked(gate), 1, 1))
    assert queue.stats.dropped == 1
    assert queue.close(WAIT_S)


def test_close_in_vain_throws_away_what_waits(gate: threading.Event) -> None:
    started = threading.Event()
    queue = StoreQueue(4, 100)
    assert queue.submit(StoreJob(blocked(gate, started), 1, 1))
    assert started.wait(WAIT_S)
    assert queue.submit(StoreJob(blocked(gate), 1, 2))
    assert not queue.close(0.01)
    assert queue.stats.dropped == 2
    gate.set()
    assert queue.close(WAIT_S)
    assert queue.stats.stored == 1


def test_an_unused_queue_has_no_thread_and_closes_at_once() -> None:
    before = threading.active_count()
    queue = StoreQueue(1, 1)
    assert threading.active_count() == before
    assert queue.flush(0.0)
    assert queue.close(0.0)


@pytest.mark.parametrize(("jobs", "size", "field"), [(0, 1, "jobs_max"), (1, 0, "bytes_max")])
def test_bounds_must_be_positive(jobs: int, size: int, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        StoreQueue(jobs, size)
    assert caught.value.field == field
