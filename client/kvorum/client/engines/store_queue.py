"""StoreQueue: blocks on their way to the cluster, stored by one thread in the background.

Generation must not wait for the cluster, so a full queue drops what comes and counts it. Dropping
loses nothing but a later hit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kvorum.core.errors import InternalError, InvalidArgumentError, KvorumError

if TYPE_CHECKING:
    from kvorum.client import StoreResult

_LOG: Final = logging.getLogger(__name__)

_IDLE_S: Final = 5.0
"""Seconds without work after which the thread ends, so that a forgotten queue is not kept alive."""


@dataclass(frozen=True, slots=True)
class StoreJob:
    """Blocks of one prompt that are to be stored.

    Attributes:
        run: copies the blocks out of their cache and sends them; called once, in the background.
        nbytes: bytes that the job keeps in memory until it has run.
        blocks: blocks to be stored.
    """

    run: Callable[[], StoreResult]
    nbytes: int
    blocks: int


@dataclass(slots=True)
class StoreStats:
    """What became of the blocks, in blocks but for `failures`.

    Attributes:
        queued: accepted into the queue.
        dropped: not accepted, or thrown away by `close`.
        stored: newly stored.
        already_stored: found stored by somebody else.
        staged: waiting at a node for parts of other ranks.
        refused: sent, but not stored.
        failures: how often each class of error was met, by its name.
    """

    queued: int = 0
    dropped: int = 0
    stored: int = 0
    already_stored: int = 0
    staged: int = 0
    refused: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class StoreQueue:
    """A bounded queue with one worker thread, which lives while there is work.

    Args:
        jobs_max: jobs that wait or run.
        bytes_max: bytes that those jobs keep in memory.

    Raises:
        InvalidArgumentError: a bound is not positive.
    """

    def __init__(self, jobs_max: int, bytes_max: int) -> None:
        for name, value in (("jobs_max", jobs_max), ("bytes_max", bytes_max)):
            if value < 1:
                raise InvalidArgumentError(f"{name} is {value}", field=name, limit="at least 1")
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max
        self._stats = StoreStats()
        self._changed = threading.Condition()
        self._waiting: deque[StoreJob] = deque()
        self._open_jobs = 0
        self._open_bytes = 0
        self._closed = False
        self._defect: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def stats(self) -> StoreStats:
        """A copy of the counters."""
        with self._changed:
            now = self._stats
            return StoreStats(
                queued=now.queued,
                dropped=now.dropped,
                stored=now.stored,
                already_stored=now.already_stored,
                staged=now.staged,
                refused=now.refused,
                failures=Counter(now.failures),
            )

    def submit(self, job: StoreJob) -> bool:
        """Queue `job` and return True, or drop it and return False; never waits."""
        with self._changed:
            if not self._has_room(job):
                self._stats.dropped += job.blocks
                return False
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="kvorum-store-queue", daemon=True
                )
                self._thread.start()
            self._open_jobs += 1
            self._open_bytes += job.nbytes
            self._stats.queued += job.blocks
            self._waiting.append(job)
            self._changed.notify_all()
            return True

    def flush(self, timeout_s: float) -> bool:
        """Wait until every queued job has run; return whether that came true in time.

        Raises:
            InternalError: the worker met a defect; what waited was thrown away.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: not self._open_jobs, timeout_s)
            self._raise_defect()
            return done

    def close(self, timeout_s: float) -> bool:
        """Take no more jobs, run what is queued until the time is over, and throw away the rest.

        Returns:
            Whether every job ran and the worker ended. A second call does nothing.

        Raises:
            InternalError: the worker met a defect.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._open_jobs, timeout_s)
            self._drop_waiting()
            thread = self._thread
        if thread is not None:
            thread.join(max(0.0, deadline - time.monotonic()))
            done = done and not thread.is_alive()
        with self._changed:
            self._raise_defect()
        return done

    def _has_room(self, job: StoreJob) -> bool:
        return (
            not self._closed
            and self._defect is None
            and self._open_jobs < self._jobs_max
            and self._open_bytes + job.nbytes <= self._bytes_max
        )

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._run(job)
                self._finish(job)
                # An idle worker must not keep the last prompt's cache in memory.
                del job
        except BaseException as defect:  # noqa: BLE001  # raised by flush and close
            with self._changed:
                self._defect = defect
                self._open_jobs -= 1
                self._drop_waiting()
            _LOG.exception("store queue stopped by a defect")

    def _next(self) -> StoreJob | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, _IDLE_S)
            if self._waiting:
                return self._waiting.popleft()
            self._thread = None
            return None

    def _run(self, job: StoreJob) -> None:
        try:
            result = job.run()
        except KvorumError as error:
            _LOG.warning("store failed: blocks=%d: %s", job.blocks, error)
            with self._changed:
                self._stats.refused += job.blocks
                self._stats.failures[type(error).__name__] += 1
            return
        with self._changed:
            self._stats.stored += result.stored
            self._stats.already_stored += result.already_stored
            self._stats.staged += result.staged
            self._stats.refused += result.refused
            self._stats.failures.update(type(error).__name__ for error in result.errors)

    def _finish(self, job: StoreJob) -> None:
        with self._changed:
            self._open_jobs -= 1
            self._open_bytes -= job.nbytes
            self._changed.notify_all()

    def _drop_waiting(self) -> None:
        for job in self._waiting:
            self._stats.dropped += job.blocks
            self._open_jobs -= 1
            self._open_bytes -= job.nbytes
        self._waiting.clear()
        self._changed.notify_all()

    def _raise_defect(self) -> None:
        if self._defect is not None:
            raise InternalError(
                f"the store queue stopped: {type(self._defect).__name__}: {self._defect}"
            ) from self._defect
