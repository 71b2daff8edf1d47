"""Goal: `kvorum up` says when it serves, and whatever ends it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvorum.cli.ports import free_ports
from kvorum.placement import ClusterFile
from tests.integration.cli.commands import Kvorum, call, command, environment, gone, nodes_of

WAIT_S = 60.0
SMALL = ("--memory", "16MiB", "--port", "0")

Up = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def up() -> Iterator[Up]:
    """Start `kvorum up` with flags; what is left of it at the end is killed."""
    started = []

    def start(*flags: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command("up", *flags),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_asked_to_stop(
    up: Up, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "kept" / "cluster.toml"
    process = up(*SMALL, "--json", "--cluster-file", str(file), "--log-dir", str(tmp_path / "logs"))
    value = json.loads(line_of(process))
    assert value["ready"] is True
    assert value["cluster_file"] == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    members = ClusterFile.parse(file.read_text()).map.members
    assert [member["address"] for member in value["members"]] == value["endpoints"]
    assert tuple(value["endpoints"]) == tuple(member.address for member in members)
    status = call("status", "--json", "--check", endpoints=value["endpoints"])
    assert status.code == 0, status

    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert (out, err) == (b"", b"")
    assert all(gone(member["pid"]) for member in value["members"])
    assert file.exists()
    assert len(list((tmp_path / "logs").glob("*.log"))) == 3


def test_people_are_told_what_to_try(up: Up) -> None:
    process = up(*SMALL, "--zones", "1")
    lines = [line_of(process).decode()]
    while "Ctrl-C" not in lines[-1]:
        lines.append(line_of(process).decode())
    assert lines[0] == "ready: 1 zone, 1 shard, 16.0 MiB a node\n"
    assert lines[1].startswith("  kvorum-a-0  zone a  shard 0  127.0.0.1:")
    (exported,) = [line for line in lines if "export" in line]
    endpoints = exported.strip().removeprefix("export KVORUM_ENDPOINTS=")
    assert call("status", endpoints=[endpoints]).code == 0
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_S)
    assert err == b"stopping; Ctrl-C again to stop at once\n"
    assert process.returncode == 0


def test_a_second_ctrl_c_does_not_wait_for_the_drain(up: Up) -> None:
    process = up(*SMALL, "--json", "--drain", "600")
    members = json.loads(line_of(process))["members"]
    stopped = members[0]["pid"]
    os.kill(stopped, signal.SIGSTOP)  # this one cannot drain
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert all(gone(member["pid"]) for member in members)


def test_ctrl_c_during_the_start_leaves_nothing(up: Up, tmp_path: Path) -> None:
    process = up(*SMALL, "--json", "--log-dir", str(tmp_path))
    while not nodes_of(tmp_path / "cluster.toml"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (0, b"")
    assert nodes_of(tmp_path / "cluster.toml") == []


def test_lost_nodes_are_told_and_the_last_ends_it(up: Up) -> None:
    process = up(*SMALL, "--zones", "2", "--json")
    members = json.loads(line_of(process))["members"]
    assert process.stderr is not None
    for member in members:
        os.kill(member["pid"], signal.SIGKILL)
        expected = f"kvorum: {member['name']} ended with status -9\n"
        assert process.stderr.readline().decode() == expected
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 4
    assert json.loads(out)["error"]["code"] == "UNAVAILABLE"


def test_two_clusters_do_not_share_a_port(up: Up) -> None:
    (port,) = free_ports(1)
    flags = ("--memory", "16MiB", "--zones", "1", "--port", str(port), "--json")
    first = up(*flags)
    assert json.loads(line_of(first))["endpoints"] == [f"127.0.0.1:{port}"]
    second = call("up", *flags)
    assert second.code == 4
    assert second.value["error"]["field"] == "port"


@pytest.mark.parametrize(
    ("flags", "code", "field"),
    [
        (["--zones", "0"], "INVALID_ARGUMENT", "zones"),
        (["--shards", "99"], "INVALID_ARGUMENT", "shards"),
        (["--memory", "much"], "INVALID_ARGUMENT", "memory"),
        (["--port", "-1"], "INVALID_ARGUMENT", "port"),
        (["--cluster-file", "/proc/no/such"], "FILE", "FILE"),
    ],
)
def test_bad_flags_are_refused(here: Kvorum, flags: list[str], code: str, field: str) -> None:
    refused = here("up", "--json", "--port", "0", *flags)
    assert refused.code == 2, refused
    assert refused.value["error"]["code"] == code
    assert refused.value["error"]["field"] == field


def test_what_a_node_does_not_accept_is_bad_input() -> None:
    refused = call("up", "--json", "--port", "0", "--memory", "4KiB")
    assert refused.code == 2, refused
    assert "field: memory; limit: " in refused.value["error"]["message"]


@pytest.mark.parametrize(
    ("flags", "code", "field"),
    [
        (["--cluster", "/no/such"], "FILE", "--cluster"),
        (["--cluster", "{file}", "--name", "nobody"], "INVALID_ARGUMENT", "name"),
        (["--cluster", "{file}"], "INVALID_ARGUMENT", "name"),
        (["--cluster", "{junk}", "--name", "x"], "INVALID_ARGUMENT", None),
        (["--name", "x"], "INVALID_ARGUMENT", "--cluster"),
    ],
)
def test_a_node_that_cannot_be_is_refused(
    here: Kvorum, tmp_path: Path, flags: list[str], code: str, field: str | None
) -> None:
    secret, ports = b"s" * 32, free_ports(1)
    file = ClusterFile.local(1, 1, ports, secret, "peer-token-peer-token", "admin-token-admin")
    (tmp_path / "file").write_text(file.render())
    (tmp_path / "junk").write_text("this is no TOML")
    words = [w.format(file=tmp_path / "file", junk=tmp_path / "junk") for w in flags]
    refused = here("node", "--json", *words)
    assert refused.code == 2, refused
    error = refused.value["error"]
    assert error["code"] == code
    assert field is None or error["field"] == field
