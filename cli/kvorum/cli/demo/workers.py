"""Workers, as their parent sees them: processes at the other end of a pipe.

Every call has a deadline, and a worker ends by itself when the parent's end of the pipe closes, so
that neither can hang on the other for ever.
"""

from __future__ import annotations

import logging
import multiprocessing
from types import TracebackType
from typing import Final, Self, TypeVar

from kvorum.cli.demo.desk import worker_main
from kvorum.cli.demo.messages import (
    Answer,
    Ask,
    AwaitReplicas,
    Failure,
    Replicas,
    Request,
    Started,
    WorkerSpec,
)
from kvorum.cli.exits import CommandError

_LOG: Final = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")

_STOP_S: Final = 10.0


class Worker:
    """The parent's view of one worker process, as a context manager."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(
            target=worker_main, args=(child, spec), name=f"kvorum-{spec.name}", daemon=True
        )
        self._process.start()
        child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            # It may be in the middle of loading or computing, which nobody waits for any more.
            self._process.kill()
        self.close()

    def started(self, timeout_s: float) -> Started:
        """Wait until the worker has loaded its model and reached the cluster."""
        return self._receive(Started, timeout_s)

    def ask(self, question: str, *, plain_first: bool, timeout_s: float) -> Answer:
        """Let the worker answer a question twice."""
        self._send(Ask(question, plain_first))
        return self._receive(Answer, timeout_s)

    def await_replicas(self, question: str, zones: int, timeout_s: float) -> int:
        """Return how many zones hold the blocks of a question's prompt, in time `zones`."""
        self._send(AwaitReplicas(question, zones, timeout_s))
        return self._receive(Replicas, timeout_s + _STOP_S).zones

    def close(self) -> None:
        """End the process, by force if need be."""
        self._pipe.close()
        self._process.join(_STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_STOP_S)

    def _send(self, request: Request) -> None:
        try:
            self._pipe.send(request)
        except ConnectionError:
            raise self._ended() from None

    def _ended(self) -> CommandError:
        self._process.join(_STOP_S)
        return CommandError(f"{self.spec.name} ended with status {self._process.exitcode}")

    def _receive(self, kind: type[ReplyT], timeout_s: float) -> ReplyT:
        """Return the next reply.

        Raises:
            CommandError: the worker failed, ended, or did not answer in time.
        """
        try:
            reply = self._pipe.recv() if self._pipe.poll(timeout_s) else None
        except (EOFError, ConnectionError):
            raise self._ended() from None
        if reply is None:
            raise CommandError(f"{self.spec.name} did not answer", limit=f"{timeout_s:g} s")
        if isinstance(reply, Failure):
            _LOG.error("worker failed, worker=%s\n%s", self.spec.name, reply.trace)
            raise CommandError(f"{self.spec.name} failed: {reply.message}")
        if not isinstance(reply, kind):
            raise CommandError(f"{self.spec.name} replied with {reply!r}")
        return reply
