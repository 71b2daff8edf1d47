"""One node in a process of its own for all tests that do it no harm."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvorum.placement import ClusterFile
from tests.integration.node.rig import CALL_S, MIB, Caller, local_file


@dataclass(frozen=True, slots=True)
class Process:
    """A node in a process of its own.

    Attributes:
        address: host:port where it serves.
        file: its cluster file.
        popen: the process.
        log: where its log goes.
    """

    address: str
    file: ClusterFile
    popen: subprocess.Popen[str]
    log: Path

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait, and return the exit status."""
        self.popen.send_signal(number)
        return self.popen.wait(CALL_S)


@contextmanager
def node_process(
    directory: Path,
    file: ClusterFile | None = None,
    flags: Sequence[str] = (),
    name: str = "kvorum-a-0",
) -> Iterator[Process]:
    """Run `kvorum node` until the end of the context; it serves when the context begins."""
    file = file or local_file()
    path, log = directory / "cluster.toml", directory / "node.log"
    path.write_text(file.render())
    command = [sys.executable, "-m", "kvorum.cli.main", "node", "--cluster", str(path)]
    command += ["--name", name, "--parent-pid", str(os.getpid()), *flags]
    with log.open("w") as stderr:
        popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert popen.stdout is not None
        line = popen.stdout.readline()
        assert line.startswith("ready "), log.read_text()
        yield Process(file.map.member(name).address, file, popen, log)
    finally:
        popen.kill()
        popen.communicate(timeout=CALL_S)


@pytest.fixture(scope="package")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A node of 64 MiB that no test may hurt, and that has no defect to log whatever it is sent."""
    directory = tmp_path_factory.mktemp("node")
    with node_process(directory, flags=("--memory", f"{64 * MIB}")) as running:
        yield running
        assert running.end() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture
async def caller(process: Process) -> AsyncIterator[Caller]:
    """Speaks with that node, in a namespace of its own."""
    async with Caller(process.address) as made:
        await made.create(f"test-{secrets.token_hex(8)}")
        yield made
