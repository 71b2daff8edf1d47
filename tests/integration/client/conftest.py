"""Clusters that lie, and clients of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

import numpy as np
import pytest

from kvorum.client import AsyncClient, ClientSettings, Fetched, Fingerprint, Hit, NamespacePolicy
from kvorum.client.tensors import Array
from kvorum.core.layout import BlockLayout
from tests.integration.client.lying_cluster import LyingCluster, lying_cluster
from tests.integration.support.values import OPAQUE, TENSORS, draw_bytes, draw_tokens

PATIENT: Final = ClientSettings(
    lookup_budget_s=20.0, fetch_deadline_s=20.0, stall_s=10.0, hedge_budget=0.0, hedge_burst=0
)
"""Where a test is not about time: nothing is late, and nothing is hedged."""

EVERYWHERE: Final = NamespacePolicy(replicas=3)


class Connect(Protocol):
    """Makes clients that are connected, and closed when the test ends."""

    async def __call__(
        self, cluster: LyingCluster, fingerprint: Fingerprint = OPAQUE, **options: Any
    ) -> AsyncClient: ...


@pytest.fixture
async def cluster() -> AsyncIterator[LyingCluster]:
    """Three zones of one node."""
    async with lying_cluster() as made:
        yield made


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Make clients."""
    async with AsyncExitStack() as stack:

        async def make(
            cluster: LyingCluster, fingerprint: Fingerprint = OPAQUE, **options: Any
        ) -> AsyncClient:
            chosen: dict[str, Any] = {
                "namespace": "n",
                "zone": "a",
                "policy": EVERYWHERE,
                "settings": PATIENT,
            }
            client = AsyncClient(cluster.endpoints, fingerprint=fingerprint, **(chosen | options))
            await stack.enter_async_context(client)
            await client.connect(timeout_s=20)
            return client

        yield make


class Case:
    """A prompt of opaque blocks of 3,000 to 3,009 bytes, stored in the client's own zone."""

    def __init__(self, blocks: int, seed: int = 1) -> None:
        self.tokens = draw_tokens(16 * blocks, seed)
        self.data = [draw_bytes(3_000 + at, seed, at) for at in range(blocks)]

    async def store(self, client: AsyncClient) -> None:
        """Store every block."""
        result = await client.store(self.tokens, self.data)
        assert result.stored == len(self.data), result

    async def find(self, client: AsyncClient) -> Hit:
        """Look every block up."""
        hit = await client.lookup(self.tokens)
        assert hit.tokens == len(self.tokens), hit
        return hit

    def is_prefix(self, fetched: Fetched, blocks: int) -> bool:
        """Whether exactly the first blocks arrived, intact."""
        got = [bytes(block) for block in fetched.blocks]
        return got == self.data[:blocks] and fetched.tokens == 16 * blocks


def draw_tensor(blocks: int, seed: int) -> Array:
    """Return noise as KV of so many blocks of `TENSORS`."""
    shape = BlockLayout.of(TENSORS).sequence_shape(blocks)
    return np.frombuffer(draw_bytes(int(np.prod(shape)) * 2, seed), np.float16).reshape(shape)
