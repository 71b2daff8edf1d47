"""Goal: a child's life is known and ended for sure. Method: small Python children, real signals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kvorum.cli.member_process import CancelledError, MemberProcess
from kvorum.core.errors import DeadlineError, InvalidArgumentError, UnavailableError

READY = "print('ready n 127.0.0.1:1', flush=True);"
SLEEP = "import time; time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
WAIT_S = 20.0

Spawn = Callable[[str], MemberProcess]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    made: list[MemberProcess] = []

    def start(code: str) -> MemberProcess:
        process = MemberProcess("n", [sys.executable, "-c", code], tmp_path / "n.log")
        made.append(process)
        process.start()
        return process

    yield start
    for process in made:
        process.kill()


def deadline() -> float:
    return time.monotonic() + WAIT_S


def test_ready_line_is_found_among_others(spawn: Spawn) -> None:
    process = spawn("print('already n no\\nready m x');" + READY + SLEEP)
    process.wait_ready(deadline())
    assert process.running
    assert process.returncode is None


def test_the_end_before_ready_shows_the_log(spawn: Spawn) -> None:
    process = spawn("raise SystemExit('the reason')")
    with pytest.raises(UnavailableError, match=r"status 1 before it was ready.*\nthe reason"):
        process.wait_ready(deadline())


def test_bad_usage_is_bad_input(spawn: Spawn) -> None:
    process = spawn("raise SystemExit(2)")
    with pytest.raises(InvalidArgumentError, match="is empty"):
        process.wait_ready(deadline())


def test_waiting_can_be_given_up(spawn: Spawn) -> None:
    process = spawn(SLEEP)
    with pytest.raises(CancelledError):
        process.wait_ready(deadline(), lambda: True)
    assert not process.wait(deadline(), lambda: True)
    assert process.running


def test_silence_ends_at_the_deadline(spawn: Spawn) -> None:
    process = spawn(SLEEP)
    with pytest.raises(DeadlineError, match="n was not ready"):
        process.wait_ready(time.monotonic())


def test_a_ready_line_of_an_earlier_life_does_not_count(spawn: Spawn) -> None:
    first = spawn(READY)
    first.wait_ready(deadline())
    assert first.wait(deadline())
    second = spawn(SLEEP)
    with pytest.raises(DeadlineError):
        second.wait_ready(time.monotonic() + 0.1)


def test_the_tail_has_the_last_lines_of_this_life(spawn: Spawn) -> None:
    spawn("print('earlier')").wait(deadline())
    process = spawn("print('\\n'.join(f'line {n}' for n in range(5000)))")
    assert process.wait(deadline())
    assert process.tail().splitlines() == [f"line {n}" for n in range(4988, 5000)]


def test_kill_is_known_at_once(spawn: Spawn) -> None:
    process = spawn(READY + SLEEP)
    process.wait_ready(deadline())
    process.kill()
    assert not process.running
    assert process.returncode == -9
    process.kill()


def test_a_paused_process_stands_still_and_goes_on(spawn: Spawn) -> None:
    process = spawn(READY + SLEEP)
    process.wait_ready(deadline())
    process.pause()
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    assert process.running
    process.resume()
    assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED


def test_a_paused_process_can_be_asked_to_stop(spawn: Spawn) -> None:
    process = spawn(READY + SLEEP)
    process.wait_ready(deadline())
    process.pause()
    process.ask_to_stop()
    assert process.wait(deadline())
    assert process.returncode == -15


def test_waiting_for_a_deaf_process_ends(spawn: Spawn) -> None:
    process = spawn(DEAF + READY + SLEEP)
    process.wait_ready(deadline())
    process.ask_to_stop()
    assert not process.wait(time.monotonic() + 0.1)
    assert process.running


def test_kill_reaches_what_the_process_started(spawn: Spawn) -> None:
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]);"
    process = spawn(child + READY + SLEEP)
    process.wait_ready(deadline())
    (grandchild,) = psutil.Process(process.pid).children()
    process.kill()
    psutil.wait_procs([grandchild], timeout=WAIT_S)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_misuse_is_refused(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(SLEEP)
    with pytest.raises(UnavailableError, match="running already"):
        process.start()
    process.kill()
    with pytest.raises(UnavailableError, match="not running"):
        process.pause()
    absent = MemberProcess("n", [str(tmp_path / "absent")], tmp_path / "n.log")
    assert (absent.pid, absent.running, absent.returncode) == (None, False, None)
    with pytest.raises(UnavailableError, match="cannot be started"):
        absent.start()
    absent.kill()
