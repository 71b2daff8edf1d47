"""Resident memory under load: the arena and a fixed overhead, however much is written and read."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import psutil
import pytest

from kvorum.core.errors import OverloadedError
from kvorum.v1 import cache_pb2
from tests.integration.node.conftest import node_process
from tests.integration.node.rig import MIB, Caller, Part, part

ARENA = 32 * MIB
OVERHEAD = 150 * MIB
WORKERS = 32
SIZES = [[100] * 200, [4_096] * 100, [64 << 10] * 32, [MIB] * 3, [2 * MIB + 5] * 2, [7 * MIB]]


@pytest.mark.slow
async def test_32_workers_write_twenty_times_the_arena(tmp_path: Path) -> None:
    """Goal: the peak of resident memory is at most arena + 150 MB, and no byte is wrong.

    Method: 32 workers, each in turn, store batches of mixed sizes and read what others stored,
    while the resident memory is sampled every 20 ms.
    """
    drawn = random.Random(13)
    data = drawn.randbytes(7 * MIB)
    known: list[Part] = []
    written = 0

    async def work(caller: Caller) -> None:
        nonlocal written
        while written < 20 * ARENA:
            parts = [part(data[:size]) for size in drawn.choice(SIZES)]
            try:
                results = await caller.put(parts)
                for one, result in zip(parts, results, strict=True):
                    if result.outcome == cache_pb2.PUT_OUTCOME_STORED:
                        written += len(one.data)
                        known.append(one)
                del known[:-300]
                wanted = drawn.sample(known, min(16, len(known)))
                for one, got in zip(wanted, await caller.get_parts(wanted), strict=True):
                    assert got.miss or got.data == one.data
            except OverloadedError:
                await asyncio.sleep(0.01)

    async def watch(process: psutil.Process, peaks: list[int]) -> None:
        while True:
            peaks.append(process.memory_info().rss)
            await asyncio.sleep(0.02)

    with node_process(tmp_path, flags=("--memory", f"{ARENA}")) as running:
        peaks = [psutil.Process(running.popen.pid).memory_info().rss]
        async with Caller(running.address) as caller, asyncio.TaskGroup() as group:
            await caller.create()
            watching = group.create_task(watch(psutil.Process(running.popen.pid), peaks))
            async with asyncio.TaskGroup() as workers:
                for _ in range(WORKERS):
                    workers.create_task(work(caller))
            watching.cancel()
            state = await caller.status()
        assert state.counters["evicted_blocks"] > 0
        assert state.staged_bytes == 0
        assert peaks[0] >= ARENA, "the arena is resident from the start"
        assert max(peaks) <= ARENA + OVERHEAD, f"peak: arena + {(max(peaks) - ARENA) / MIB:.0f} MiB"
