"""Redis, started by the benchmark without persistence on a free loopback port."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import redis

from bench.cases import Case
from kvorum.cli.ports import free_ports

_START_S: Final = 10.0


class Redis:
    """Client of a Redis server; a batch is one MSET and one MGET."""

    name = "redis"

    def __init__(self, pid: int, client: redis.Redis) -> None:
        self.pid = pid
        self._client = client
        self._case = Case(0, 0, batch=False)
        self._keys: list[str] = []

    def prepare(self, case: Case) -> None:
        """Name the keys; those of the last case go, so that memory stays bounded."""
        self._client.flushall()
        self._case = case
        self._keys = [f"block-{index}" for index in range(case.blocks)]

    def put(self, blocks: Sequence[memoryview]) -> None:
        """Store every block."""
        if self._case.batch:
            self._client.mset(dict(zip(self._keys, blocks, strict=True)))
            return
        for key, block in zip(self._keys, blocks, strict=True):
            self._client.set(key, block)

    def get(self, into: memoryview) -> None:
        """Read the blocks and copy them into the buffer: the client hands out `bytes`."""
        target = np.frombuffer(into, dtype=np.uint8).reshape(self._case.blocks, -1)
        if self._case.batch:
            for row, value in zip(target, self._client.mget(self._keys), strict=True):
                row[:] = np.frombuffer(_bytes(value), dtype=np.uint8)
            return
        for row, key in zip(target, self._keys, strict=True):
            row[:] = np.frombuffer(_bytes(self._client.get(key)), dtype=np.uint8)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"Redis answered {value!r:.40}")
    return value


@contextlib.contextmanager
def redis_server() -> Iterator[Redis | None]:
    """Start a server and yield its client; None where Redis is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="kvorum-redis-") as directory:
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", directory]
        command += ["--save", "", "--appendonly", "no"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        client = redis.Redis("127.0.0.1", port)
        try:
            _wait(client, server)
            yield Redis(server.pid, client)
        finally:
            client.close()
            server.terminate()
            server.wait()


def _wait(client: redis.Redis, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            client.ping()
        except redis.ConnectionError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
