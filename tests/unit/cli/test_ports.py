"""Goal: ports for a cluster are free, distinct, and not those of outgoing connections."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kvorum.cli import ports


def test_ports_are_distinct_and_can_be_bound() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    assert ports.taken_ports(found) == []


def test_ports_lie_below_those_of_outgoing_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = int(ports._RANGE_FILE.read_text().split()[0])
    assert max(ports.free_ports(20)) < first
    odd = tmp_path / "range"
    odd.write_text("1024 65000")  # no room below: the usual start is taken
    monkeypatch.setattr(ports, "_RANGE_FILE", odd)
    assert max(ports.free_ports(20)) < 32_768


def test_a_port_in_use_is_found_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ports.taken_ports([port]) == [port]
    assert ports.taken_ports([port]) == []
