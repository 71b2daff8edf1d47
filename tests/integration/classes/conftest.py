"""Clusters that the tests of the bug classes share, and the seed of each test."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import Client, Fingerprint
from kvorum.v1 import cache_pb2
from tests.integration.support.clusters import MIB, ProxiedCluster, proxied_cluster
from tests.integration.support.settling import eventually
from tests.integration.support.values import OPAQUE, TENSORS, draw_bytes
from tests.integration.support.wire import Block, Scope, Wire


class Connect(Protocol):
    """Makes clients of a cluster that are closed when the test ends."""

    def __call__(
        self,
        endpoints: tuple[str, ...],
        namespace: str,
        fingerprint: Fingerprint = TENSORS,
        **options: Any,
    ) -> Client: ...


@pytest.fixture
def seed() -> int:
    """What everything random in a test is drawn from; `KVORUM_SEED` repeats a run."""
    value = int(os.environ.get("KVORUM_SEED") or secrets.randbelow(1 << 31))
    print(f"repeat with KVORUM_SEED={value}")  # noqa: T201  # shown when the test fails
    return value


@pytest.fixture
def name() -> str:
    """A namespace's name that no other test uses."""
    return f"test-{secrets.token_hex(8)}"


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """Fail if a process that a test started outlives all tests.

    `multiprocessing` keeps one process to track resources until its parent ends; other tests start
    it in the same parent, and it is not theirs to end.
    """
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    children = psutil.Process().children(recursive=True)
    commands = [" ".join(child.cmdline()) for child in children if child.pid not in before]
    left = [command for command in commands if "multiprocessing.resource_tracker" not in command]
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Three zones of one node, which no test may hurt."""
    with LocalCluster(LocalSettings(zones=3, memory_bytes=128 * MIB)) as running:
        yield running


@pytest.fixture(scope="session")
def single() -> Iterator[LocalCluster]:
    """A cluster of one node, which no test may hurt."""
    with LocalCluster(LocalSettings(zones=1, memory_bytes=128 * MIB)) as running:
        yield running


@pytest.fixture(scope="session")
def wire(single: LocalCluster) -> Iterator[Wire]:
    """The one node of `single`, call by call."""
    with Wire(single.endpoints[0]) as opened:
        yield opened


@pytest.fixture
def scope(wire: Wire, name: str, seed: int) -> Iterator[Scope]:
    """A namespace with one block; after the test the block is whole, the node idle and the same."""
    made = wire.create(name, OPAQUE)
    block = Block(draw_bytes(64, seed, 77), draw_bytes(10_000, seed, 77))
    assert [r.outcome for r in wire.put(made, [block])] == [cache_pb2.PUT_OUTCOME_STORED]
    before = wire.status()
    yield made
    assert bytes(wire.get_blocks(made, [block])[0].data) == block.payload
    eventually(
        lambda: wire.status().staged_bytes,
        "memory comes back",
        holds=lambda staged: staged == before.staged_bytes,
    )
    assert wire.status().answerer.incarnation == before.answerer.incarnation


@pytest.fixture(scope="session")
def proxied_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedCluster]:
    """Three zones of one node behind fault proxies."""
    directory: Path = tmp_path_factory.mktemp("proxied")
    with proxied_cluster(directory, zones=3, memory_bytes=64 * MIB) as running:
        yield running


@pytest.fixture
def proxied(proxied_session: ProxiedCluster) -> Iterator[ProxiedCluster]:
    """The cluster behind proxies, whole at the start and made whole at the end."""
    try:
        yield proxied_session
    finally:
        proxied_session.heal()
        for process in proxied_session.processes.values():
            process.resume()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Make clients that are closed at the end of the test."""
    with ExitStack() as stack:

        def make(
            endpoints: tuple[str, ...],
            namespace: str,
            fingerprint: Fingerprint = TENSORS,
            **options: Any,
        ) -> Client:
            client = Client(endpoints, namespace=namespace, fingerprint=fingerprint, **options)
            return stack.enter_context(client)

        yield make
