"""Clusters for the engines' tests, and clients that end with their test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, Final, Protocol

import pytest

torch = pytest.importorskip("torch")

from kvorum.cli.local_cluster import LocalCluster, LocalSettings  # noqa: E402
from kvorum.client import Client, ClientSettings, Fingerprint  # noqa: E402

PATIENT: Final = ClientSettings(lookup_budget_s=10.0)
"""A shared machine may stall any process for a while; what a stall costs is not tested here."""

_numbers = itertools.count()


class OpenClient(Protocol):
    """How a test gets a client."""

    def __call__(
        self,
        fingerprint: Fingerprint,
        *,
        endpoints: Any = None,
        namespace: str | None = None,
        settings: ClientSettings = PATIENT,
    ) -> Client:
        """Open a client, of the shared cluster and in a namespace of its own unless told."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Let torch use one thread: so small models gain nothing from two, which wait by spinning."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """One node in a process of its own, for all tests that leave it alone."""
    with LocalCluster(LocalSettings(zones=1, memory_bytes=256 << 20)) as running:
        yield running


@pytest.fixture
def fragile_cluster() -> Iterator[LocalCluster]:
    """One node that a test may stop or kill."""
    with LocalCluster(LocalSettings(zones=1, memory_bytes=32 << 20)) as running:
        yield running


@pytest.fixture
def open_client(cluster: LocalCluster) -> Iterator[OpenClient]:
    """Open clients; the end of the test closes them."""
    with contextlib.ExitStack() as stack:

        def opened(
            fingerprint: Fingerprint,
            *,
            endpoints: Any = None,
            namespace: str | None = None,
            settings: ClientSettings = PATIENT,
        ) -> Client:
            return stack.enter_context(
                Client(
                    endpoints or cluster.endpoints,
                    namespace=namespace or f"engine-{next(_numbers)}",
                    fingerprint=fingerprint,
                    settings=settings,
                )
            )

        yield opened
