"""One cluster for the tests of a module, and the command with its endpoints."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from kvorum.cli import LocalCluster
from kvorum.cli.main import run
from tests.integration.cli.commands import SMALL, Called, Kvorum


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(SMALL) as running:
        yield running


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Kvorum:
    """Call the command in this process, which spares the start of another one."""

    def call_here(*args: str, stdin: bytes = b"") -> Called:
        capfd.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(args)
        out, err = capfd.readouterr()
        return Called(code, out, err)

    return call_here


@pytest.fixture
def kvorum(cluster: LocalCluster, here: Kvorum, monkeypatch: pytest.MonkeyPatch) -> Kvorum:
    """The same with the cluster's endpoints."""
    monkeypatch.setenv("KVORUM_ENDPOINTS", ",".join(cluster.endpoints))
    return here
