"""What is no failure leaves no trace in a node's log: readers that go away, nodes that end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import AsyncClient
from tests.integration.support.values import OPAQUE

BLOCK_BYTES = 8 << 20
BLOCKS = 8


async def leave_in_the_middle(client: AsyncClient) -> None:
    """Store blocks, then begin to read them three times and go away each time."""
    tokens = range(BLOCKS * OPAQUE.block_tokens)
    blocks = [random.Random(index).randbytes(BLOCK_BYTES) for index in range(BLOCKS)]
    stored = await client.store(tokens, blocks, deadline_s=30)
    assert stored.stored == BLOCKS
    hit = await client.lookup(tokens, budget_s=5)
    for _ in range(3):
        reader = asyncio.create_task(client.fetch(hit, deadline_s=30))
        await asyncio.sleep(0.03)
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader
    fetched = await client.fetch(hit, deadline_s=30)
    assert fetched.tokens == len(tokens), "the node goes on"


async def test_ordinary_ends_are_no_errors(tmp_path: Path) -> None:
    """Goal: an SRE who greps for errors finds none where nothing failed.

    Method: readers cancel in mid-stream, one node ends while its peers hold pipes to it, then all
    end; no log has an error or a traceback.
    """
    with LocalCluster(
        LocalSettings(zones=3, memory_bytes=128 << 20, directory=tmp_path)
    ) as cluster:
        async with AsyncClient(cluster.endpoints, namespace="quiet", fingerprint=OPAQUE) as client:
            await client.connect()
            await leave_in_the_middle(client)
        await asyncio.to_thread(cluster.restart, cluster.members[0].name)
    logs = {path.name: path.read_text() for path in tmp_path.rglob("*.log")}
    assert len(logs) == 3
    assert all("node ended" in text for text in logs.values())
    for name, text in logs.items():
        assert "Traceback" not in text, f"{name}:\n{text}"
        assert " ERROR " not in text, f"{name}:\n{text}"
