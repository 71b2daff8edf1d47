"""One cache node as a child process: start, readiness, signals, and its end.

Both output streams go to one log file. The node keeps that file bounded itself
(`kvorum.cli.watch`), because a parent that is busy or stopped must not be able to stall a node.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kvorum.cli.exits import ExitCode
from kvorum.core.errors import DeadlineError, InvalidArgumentError, UnavailableError

POLL_S: Final = 0.02
"""Seconds between two looks at a process or its log."""

_TAIL_LINES: Final = 12
_TAIL_BYTES: Final = 8_192
_KILL_S: Final = 10.0


class CancelledError(Exception):
    """Waiting was given up on request."""


def never() -> bool:
    """Say that nobody wants to cancel."""
    return False


class MemberProcess:
    """A member of a local cluster. Every method but `start` may be called in any state.

    Args:
        name: the member's name.
        command: program and arguments of the node.
        log: file for its output; appended to.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """Process id, None before the first start; that of the last process after its end."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status as `subprocess` gives it; None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process; does not wait until it serves.

        Raises:
            UnavailableError: it is running already, or cannot be started.
        """
        if self.running:
            raise UnavailableError(f"{self.name} is running already, with pid {self.pid}")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        log = os.open(self.log, flags, 0o600)
        try:
            self._log_start = os.fstat(log).st_size
            # A group of its own keeps a terminal's Ctrl-C from the nodes; staying in the session
            # makes the kernel wake and hang up even a stopped node when its parent is gone.
            self._process = subprocess.Popen(  # noqa: S603  # our own command
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        except OSError as error:
            raise UnavailableError(f"{self.name} cannot be started: {error}") from error
        finally:
            os.close(log)
        self._paused = False

    def wait_ready(self, deadline: float, cancelled: Callable[[], bool] = never) -> None:
        """Wait for the ready line until `deadline`, a time of `time.monotonic`.

        Raises:
            InvalidArgumentError: the process ended because of its flags or files.
            UnavailableError: the process ended otherwise.
            DeadlineError: the deadline passed. All three have the tail of the log.
            CancelledError: `cancelled` said so.
        """
        while not self._said_ready():
            if not self.running:
                usage = self.returncode == ExitCode.USAGE
                raise (InvalidArgumentError if usage else UnavailableError)(
                    f"{self.name} ended with status {self.returncode} before it was ready"
                    f"{self._tail_text()}"
                )
            if cancelled():
                raise CancelledError
            if time.monotonic() >= deadline:
                raise DeadlineError(
                    f"{self.name} was not ready in time{self._tail_text()}", field="start_s"
                )
            time.sleep(POLL_S)

    def _said_ready(self) -> bool:
        line = f"ready {self.name} ".encode()
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read()
        return text.startswith(line) or b"\n" + line in text

    def tail(self) -> str:
        """Return the last lines of the log since the last start, at most 12 lines or 8 KiB."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(size - _TAIL_BYTES, min(self._log_start, size)))
                text = log.read(_TAIL_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    def _tail_text(self) -> str:
        tail = self.tail()
        return f"; end of {self.log}:\n{tail}" if tail else f"; {self.log} is empty"

    def kill(self) -> None:
        """End the process at once (SIGKILL), and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self.wait(time.monotonic() + _KILL_S)

    def pause(self) -> None:
        """Stop the process (SIGSTOP), and wait until it stands still.

        Raises:
            UnavailableError: it is not running.
            DeadlineError: it did not stop.
        """
        if not self.running or self._process is None:
            raise UnavailableError(f"{self.name} is not running")
        self._signal(signal.SIGSTOP)
        self._paused = True
        deadline = time.monotonic() + _KILL_S
        wanted = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self._process.pid, wanted) is None:
            if time.monotonic() >= deadline:
                raise DeadlineError(f"{self.name} did not stop", limit=f"{_KILL_S:g} s")
            time.sleep(POLL_S)

    def resume(self) -> None:
        """Let a paused process go on; nothing happens to another one."""
        self._signal(signal.SIGCONT)
        self._paused = False

    def ask_to_stop(self) -> None:
        """Ask the process to drain and end (SIGTERM), a paused one too; does not wait."""
        self._signal(signal.SIGTERM)
        if self._paused:
            self.resume()

    def wait(self, deadline: float, cancelled: Callable[[], bool] = never) -> bool:
        """Wait until the process is gone; return whether it is.

        Ends at `deadline`, a time of `time.monotonic`, or when `cancelled` says so.
        """
        while self.running:
            if time.monotonic() >= deadline or cancelled():
                return False
            time.sleep(POLL_S)
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and what it started, if it still runs."""
        if self._process is not None and self.running:
            os.killpg(self._process.pid, number)
