"""A `kvorum` to call, and the processes of a cluster to look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kvorum.cli import LocalSettings

MIB = 1 << 20
CALL_S = 60.0
SMALL = LocalSettings(zones=3, memory_bytes=64 * MIB)


@dataclass(frozen=True)
class Called:
    """What a call of the command came to."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        (line,) = self.out.splitlines()
        value: dict[str, Any] = json.loads(line)
        return value


Kvorum = Callable[..., "Called"]


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "kvorum.cli.main", *args]


def environment(endpoints: Sequence[str] = ()) -> dict[str, str]:
    """This process's environment without settings of Kvorum, but for the endpoints."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("KVORUM_")}
    return plain | ({"KVORUM_ENDPOINTS": ",".join(endpoints)} if endpoints else {})


def call(*args: str, endpoints: Sequence[str] = (), stdin: bytes = b"") -> Called:
    done = subprocess.run(
        command(*args),
        input=stdin,
        capture_output=True,
        timeout=CALL_S,
        check=False,
        env=environment(endpoints),
    )
    return Called(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode())


def gone(pid: int) -> bool:
    """Whether a process has ended, collected by its parent or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def nodes_of(directory: Path) -> list[psutil.Process]:
    """Nodes that were started with a cluster file in `directory`."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(directory) in part for part in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found
