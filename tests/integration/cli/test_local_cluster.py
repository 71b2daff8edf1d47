"""Goal: a local cluster starts, is hurt and ends as asked, and no process outlives it."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.cli.exits import FileError
from kvorum.cli.member_process import CancelledError
from kvorum.core.errors import InvalidArgumentError, UnavailableError
from kvorum.placement import ClusterFile
from tests.integration.cli.commands import MIB, SMALL, environment, gone, nodes_of

WAIT_S = 30.0


def pids(cluster: LocalCluster) -> dict[str, int]:
    found = {member.name: cluster.process(member.name).pid for member in cluster.members}
    return {name: pid for name, pid in found.items() if pid is not None}


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def accepts(address: str) -> bool:
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), 1.0):
            return True
    except OSError:
        return False


def test_life_of_a_cluster() -> None:
    with LocalCluster(SMALL) as cluster:
        names = [member.name for member in cluster.members]
        assert names == ["kvorum-a-0", "kvorum-b-0", "kvorum-c-0"]
        assert all(accepts(endpoint) for endpoint in cluster.endpoints)
        path = cluster.cluster_file
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ClusterFile.parse(path.read_text()).map.members == cluster.members
        first = pids(cluster)

        cluster.kill("kvorum-a-0")
        assert gone(first["kvorum-a-0"])
        cluster.restart("kvorum-a-0")
        assert accepts(cluster.endpoints[0])

        cluster.pause("kvorum-b-0")
        assert psutil.Process(first["kvorum-b-0"]).status() == psutil.STATUS_STOPPED
        cluster.resume("kvorum-b-0")
        cluster.restart("kvorum-b-0")
        assert gone(first["kvorum-b-0"])

        assert cluster.kill_zone("c") == ("kvorum-c-0",)
        cluster.pause("kvorum-a-0")
        last = pids(cluster)
    assert all(gone(pid) for pid in last.values())
    assert not path.parent.exists()
    cluster.stop()


def test_a_hurried_stop_kills_what_does_not_end() -> None:
    cluster = LocalCluster(LocalSettings(zones=1, memory_bytes=16 * MIB, drain_s=600.0))
    cluster.start()
    (pid,) = pids(cluster).values()
    os.kill(pid, signal.SIGSTOP)  # behind the cluster's back, so that it is not woken
    cluster.stop(hurried=lambda: True)
    assert gone(pid)


def test_a_start_can_be_given_up(tmp_path: Path) -> None:
    cluster = LocalCluster(LocalSettings(directory=tmp_path))
    with pytest.raises(CancelledError):
        cluster.start(cancelled=lambda: True)
    assert nodes_of(tmp_path) == []


def test_secrets_are_drawn_anew(tmp_path: Path) -> None:
    one = LocalSettings(zones=1, memory_bytes=16 * MIB, directory=tmp_path)
    texts = []
    for _ in range(2):
        with LocalCluster(one) as cluster:
            texts.append(ClusterFile.parse(cluster.cluster_file.read_text()))
    assert len({file.key_secret for file in texts}) == 2
    assert len({token for file in texts for token in (file.peer_token, file.admin_token)}) == 4
    assert (tmp_path / "kvorum-a-0.log").exists()


def test_a_node_that_ends_shows_why_and_takes_the_others_along(tmp_path: Path) -> None:
    settings = LocalSettings(directory=tmp_path, node_flags={"eviction": "no-such-policy"})
    with pytest.raises(
        InvalidArgumentError, match=r"kvorum-a-0 ended with status \d.*\n.*eviction"
    ):
        LocalCluster(settings).start()
    assert nodes_of(tmp_path) == []


def test_a_fixed_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        settings = LocalSettings(zones=1, port=port, directory=tmp_path)
        with pytest.raises(UnavailableError, match=f"already in use: 127.0.0.1:{port}") as caught:
            LocalCluster(settings).start()
    assert caught.value.field == "port"
    assert nodes_of(tmp_path) == []


def test_a_file_that_is_no_cluster_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary")
    settings = LocalSettings(zones=1, cluster_file=path)
    with pytest.raises(FileError, match="no cluster file"):
        LocalCluster(settings).start()
    assert path.read_text() == "dear diary"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"zones": 0}, "zones"),
        ({"zones": 17}, "zones"),
        ({"shards": 0}, "shards"),
        ({"zones": 3, "shards": 22}, "shards"),
        ({"port": 80}, "port"),
        ({"port": 65_535}, "port"),
    ],
)
def test_shapes_out_of_range_are_refused(values: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        LocalSettings(**values)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_misuse_is_refused() -> None:
    cluster = LocalCluster(SMALL)
    with pytest.raises(UnavailableError):
        _ = cluster.cluster_file
    with pytest.raises(InvalidArgumentError, match="no member"):
        cluster.kill("kvorum-a-0")
    with LocalCluster(LocalSettings(zones=1, memory_bytes=16 * MIB)) as running:
        with pytest.raises(UnavailableError, match="already"):
            running.start()
        with pytest.raises(InvalidArgumentError, match="no zone"):
            running.kill_zone("z")
        assert running.process("kvorum-a-0").running


PARENT = """
import sys, time
from pathlib import Path
from kvorum.cli import LocalCluster, LocalSettings
cluster = LocalCluster(LocalSettings(memory_bytes=1 << 24, directory=Path(sys.argv[1])))
cluster.start()
cluster.pause("kvorum-b-0")
print("started", flush=True)
time.sleep(600)
"""


def test_nodes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        nodes = nodes_of(tmp_path / "cluster.toml")
        assert len(nodes) == 3
        assert psutil.STATUS_STOPPED in {node.status() for node in nodes}
    finally:
        parent.kill()
        parent.communicate()
    assert eventually(lambda: all(gone(node.pid) for node in nodes))


def test_a_log_stays_bounded(tmp_path: Path) -> None:
    flags = {"log-bytes-max": "20000", "log-level": "debug"}
    settings = LocalSettings(zones=1, memory_bytes=16 * MIB, directory=tmp_path, node_flags=flags)
    with LocalCluster(settings) as cluster:
        log = cluster.process("kvorum-a-0").log
        with log.open("ab") as file:
            file.write(b"x" * 99 + b"\n" + b"y" * 30_000 + b"\n")
        assert eventually(lambda: log.stat().st_size <= 20_000)
        assert cluster.process("kvorum-a-0").running
    assert not re.search(rb"x{99}", log.read_bytes())
