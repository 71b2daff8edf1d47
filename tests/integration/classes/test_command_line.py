"""Bug classes 2, 3 and 9 through the `kvorum` command, in processes of its own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvorum.cli import LocalCluster
from tests.integration.support.clusters import MIB, ProxiedCluster
from tests.integration.support.proxy import Delay, Direction
from tests.integration.support.settling import eventually
from tests.integration.support.values import draw_bytes, draw_tokens
from tests.integration.support.wire import Wire

CALL_S = 60.0
FILE_BYTES = 6 * MIB
NOT_FOUND = 3


@contextmanager
def kvorum(endpoints: tuple[str, ...], *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command until it ends, or the context does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kvorum.cli.main", *args, "--json", "--timeout=60"],
        env={**os.environ, "KVORUM_ENDPOINTS": ",".join(endpoints), "PYTHONHASHSEED": "random"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=CALL_S)


def call(endpoints: tuple[str, ...], *args: str) -> tuple[int, dict[str, Any]]:
    """Run the command to its end; return its exit status and the JSON that it printed."""
    with kvorum(endpoints, *args) as process:
        out, err = process.communicate(timeout=CALL_S)
        lines = (out or err).splitlines()
        return process.returncode, json.loads(lines[-1]) if lines else {}


def staged(endpoints: tuple[str, ...]) -> int:
    """Return the bytes of unfinished stores on all nodes."""
    total = 0
    for address in endpoints:
        with Wire(address) as wire:
            total += wire.status().staged_bytes
    return total


@pytest.mark.slow
def test_a_put_that_is_killed_leaves_the_old_file(
    proxied: ProxiedCluster, name: str, seed: int, tmp_path: Path
) -> None:
    """Goal: `kvorum put --overwrite` killed at any moment: readers get the old file, whole.

    Method: a slow network, so that there is time to kill the process with some of its bytes on
    their way; before any file was stored, `get` says that there is none.
    """
    paths = [tmp_path / f"file-{number}" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(draw_bytes(FILE_BYTES, seed, number))
    out = tmp_path / "out"
    read = ("get", name, "--namespace", name, "--output", str(out))
    write = ("put", "--namespace", name, "--name", name, "--overwrite")

    def killed_put(path: Path, at_least: int) -> None:
        for proxy in proxied.proxies.values():
            proxy.arm(Delay(Direction.TO_NODE, 0.02))
        with kvorum(proxied.endpoints, *write, str(path)) as process:
            eventually(lambda: staged(proxied.endpoints) >= at_least, "bytes are on their way")
            os.kill(process.pid, signal.SIGKILL)
        proxied.heal()
        eventually(lambda: staged(proxied.endpoints) == 0, "memory comes back")

    killed_put(paths[0], 1)
    code, _ = call(proxied.endpoints, *read)
    assert (code, out.exists()) == (NOT_FOUND, False)
    code, stored = call(proxied.endpoints, *write, str(paths[1]))
    assert code == 0, stored
    for path, at_least in ((paths[2], 1), (paths[3], 3 * MIB)):
        killed_put(path, at_least)
        code, _ = call(proxied.endpoints, *read)
        assert code == 0
        assert out.read_bytes() == paths[1].read_bytes()
    code, stored = call(proxied.endpoints, *write, str(paths[4]))
    assert code == 0, stored
    assert call(proxied.endpoints, *read)[0] == 0
    assert out.read_bytes() == paths[4].read_bytes()


@pytest.mark.parametrize("count", [1, 40])
def test_fresh_processes_agree_on_a_token_list(
    cluster: LocalCluster, name: str, seed: int, tmp_path: Path, count: int
) -> None:
    """Goal: what one process stores under tokens, another finds, whatever its hash seed.

    Method: three processes put, look up and get; a list with another first token is a miss.
    """
    source, out = tmp_path / "source", tmp_path / "out"
    source.write_bytes(draw_bytes(10_000 + count, seed))
    tokens = draw_tokens(16 * count, seed)
    named, other = tmp_path / "tokens.json", tmp_path / "other.json"
    named.write_text(json.dumps(tokens))
    other.write_text(json.dumps([tokens[0] ^ 1, *tokens[1:]]))
    where = ("--namespace", name, "--token-file")

    code, stored = call(cluster.endpoints, "put", str(source), *where, str(named))
    assert (code, stored.get("stored")) == (0, count), stored
    assert call(cluster.endpoints, "lookup", *where, str(named))[0] == 0
    assert call(cluster.endpoints, "get", *where, str(named), "-o", str(out))[0] == 0
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (source, out)]
    assert digests[0] == digests[1]
    out.unlink()
    assert call(cluster.endpoints, "lookup", *where, str(other))[0] == NOT_FOUND
    assert call(cluster.endpoints, "get", *where, str(other), "-o", str(out))[0] == NOT_FOUND
    assert not out.exists()
