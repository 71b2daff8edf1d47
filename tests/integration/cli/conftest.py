"""One cluster for the tests of a module, and the command with its endpoints."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvorum.cli import LocalCluster
from tests.integration.cli.commands import SMALL, Called, Kvorum, call


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(SMALL) as running:
        yield running


@pytest.fixture
def kvorum(cluster: LocalCluster) -> Kvorum:
    """Call the command with the cluster's endpoints."""

    def run(*args: str, stdin: bytes = b"") -> Called:
        return call(*args, endpoints=cluster.endpoints, stdin=stdin)

    return run
