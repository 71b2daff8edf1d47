"""Goal: a worker that fails, dies or hangs becomes an error of the demo, in time.

Method: real processes whose work is replaced by something that goes wrong.
"""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

import pytest

from kvorum.cli.demo import messages, workers
from kvorum.cli.demo.messages import WorkerSpec
from kvorum.cli.demo.model import ReadyModel
from kvorum.cli.demo.workers import Worker
from kvorum.cli.exits import CommandError

WAIT_S = 60.0


def spec(name: str) -> WorkerSpec:
    return WorkerSpec(
        name=name,
        zone="a",
        endpoints=("127.0.0.1:1",),
        ready=ReadyModel("/nowhere", "none", "1", True, {}),
        block_tokens=16,
        max_new_tokens=1,
        lookup_budget_s=0.01,
    )


def die(_pipe: Connection, _: WorkerSpec) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(pipe: Connection, _: WorkerSpec) -> None:
    pipe.send(messages.Started(0.0))
    time.sleep(WAIT_S)


def babble(pipe: Connection, _: WorkerSpec) -> None:
    pipe.send("hello")


def obey(pipe: Connection, _: WorkerSpec) -> None:
    """Reply with what was asked until the pipe closes, as a worker that is well does."""
    pipe.send(messages.Started(0.5))
    try:
        while True:
            request = pipe.recv()
            pipe.send(messages.Replicas(request.zones))
    except EOFError:
        return


def test_a_model_that_cannot_be_loaded_is_reported_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    with Worker(spec("worker-x")) as worker, pytest.raises(CommandError) as caught:
        worker.started(WAIT_S)
    assert "worker-x failed" in caught.value.message
    assert "Traceback" in caplog.text


def test_a_worker_that_dies_is_reported_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "worker_main", die)
    with Worker(spec("worker-x")) as worker, pytest.raises(CommandError, match="status -9"):
        worker.started(WAIT_S)


def test_a_request_to_a_dead_worker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "worker_main", die)
    with Worker(spec("worker-x")) as worker:
        with pytest.raises(CommandError):
            worker.started(WAIT_S)
        with pytest.raises(CommandError, match="worker-x ended"):
            worker.ask("?", plain_first=True, timeout_s=WAIT_S)


def test_a_worker_that_hangs_is_given_up_and_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "worker_main", hang)
    monkeypatch.setattr(workers, "_STOP_S", 0.1)
    with Worker(spec("worker-x")) as worker:
        worker.started(WAIT_S)
        with pytest.raises(CommandError, match="did not answer") as caught:
            worker.ask("?", plain_first=True, timeout_s=0.1)
        process = worker._process
    assert caught.value.limit == "0.1 s"
    process.join(WAIT_S)
    assert process.exitcode == -signal.SIGKILL


def test_a_reply_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "worker_main", babble)
    with Worker(spec("worker-x")) as worker, pytest.raises(CommandError, match="'hello'"):
        worker.started(WAIT_S)


def test_a_worker_is_killed_when_the_play_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "worker_main", obey)
    worker = Worker(spec("worker-x"))
    worker.started(WAIT_S)
    with pytest.raises(ZeroDivisionError), worker:
        raise ZeroDivisionError
    assert worker._process.exitcode == -signal.SIGKILL


def test_a_worker_ends_when_its_pipe_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "worker_main", obey)
    with Worker(spec("worker-x")) as worker:
        assert worker.started(WAIT_S).load_s == 0.5
        assert worker.await_replicas("?", 2, 1.0) == 2
        process = worker._process
    assert process.exitcode == 0
