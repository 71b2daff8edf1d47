"""Fetch: brings the blocks of a hit from the nearest replicas that deliver them, in time.

Blocks are grouped by node and stream in parallel. What a node misses, spoils or holds up is asked
of the next replica. A block is written by one answer at a time, so bytes never mix.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvorum.client.assembly import Assembly, Expected
from kvorum.client.caller import Caller
from kvorum.client.destinations import Destination
from kvorum.client.fetchplan import FetchPlan
from kvorum.client.hedge import HedgeBudget
from kvorum.client.reading import GetCall, Reading
from kvorum.client.results import FetchOutcome, LocatedBlock
from kvorum.client.settings import ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.view import View
from kvorum.core import limits
from kvorum.core.errors import KvorumError, OverloadedError
from kvorum.placement import Member

_TICK_S: Final = 0.02
_BUSY_S: Final = 0.03


@dataclass(frozen=True, slots=True)
class _Job:
    """What all calls of one fetch have in common.

    Attributes:
        group: runs the calls.
        members: the nodes that may be asked, by name.
        blocks: what is fetched, by position.
        destination: where the bytes go.
        call: what all requests have in common.
        plan: decides whom to ask.
        end: when to stop, in seconds of the monotonic clock.
    """

    group: asyncio.TaskGroup
    members: Mapping[str, Member]
    blocks: Sequence[LocatedBlock]
    destination: Destination
    call: GetCall
    plan: FetchPlan
    end: float


class Fetch:
    """One fetch.

    Args:
        caller: calls nodes.
        budget: pays for hedges.
        settings: waits.
        stats: counts.
    """

    def __init__(
        self, caller: Caller, budget: HedgeBudget, settings: ClientSettings, stats: ClientStats
    ) -> None:
        self._caller = caller
        self._health = caller.health
        self._budget = budget
        self._settings = settings
        self._stats = stats
        self._running: dict[asyncio.Task[KvorumError | None], Reading] = {}
        self._bytes: Counter[str] = Counter()
        self._errors: list[KvorumError] = []

    async def run(
        self,
        blocks: Sequence[LocatedBlock],
        destination: Destination,
        call: GetCall,
        end: float,
        earlier: FetchOutcome | None = None,
    ) -> FetchOutcome:
        """Bring blocks; never raises for a cluster in trouble. Nothing is written afterwards.

        Args:
            blocks: what to bring, a prefix.
            destination: where the bytes go; the caller finishes it.
            call: what all calls of this fetch have in common.
            end: when to stop, in seconds of the monotonic clock.
            earlier: what an earlier run for the same destination came to, to go on from.
        """
        members = {member.name: member for member in call.view.map.members}
        candidates = self._candidates(call.view, members, blocks)
        plan = FetchPlan(candidates, self._settings.attempts_max, self._health.allows)
        if earlier is not None:
            plan.skip(earlier.received)
            self._bytes.update(earlier.bytes_by_zone)
        async with asyncio.TaskGroup() as group:
            job = _Job(group, members, blocks, destination, call, plan, end)
            while (now := time.monotonic()) < end:
                for node, positions in plan.assign(now).items():
                    self._start(job, node, positions)
                if plan.settled():
                    break
                await self._wait(job)
                self._drop_stalled()
                self._hedge(job)
            for task in self._running:
                task.cancel()
        for reading in self._running.values():
            self._count(reading)
            if self._is_slow(reading):
                self._health.late(reading.member.name)
        kept, reason = plan.prefix()
        return FetchOutcome(kept, reason, self._bytes, self._errors, plan.received())

    def _candidates(
        self, view: View, members: Mapping[str, Member], blocks: Sequence[LocatedBlock]
    ) -> list[list[str]]:
        """Return the nodes that may hold each block, those in doubt last.

        First come those that said so, then the other replicas, each nearest first.
        """
        orders: dict[tuple[tuple[str, ...], int], list[str]] = {}
        for block in blocks:
            if (block.nodes, block.slot) not in orders:
                known = [members[name] for name in block.nodes if name in members]
                holders = view.map.nearest(known, view.zone)
                names = [member.name for member in (*holders, *view.replicas_of(block.slot))]
                order = sorted(dict.fromkeys(names), key=self._health.doubted)
                orders[block.nodes, block.slot] = order
        return [orders[block.nodes, block.slot] for block in blocks]

    def _start(
        self, job: _Job, node: str, positions: Sequence[int], *, hedge: bool = False
    ) -> None:
        """Ask a node for blocks, in as many calls as the protocol wants."""
        again = job.plan.started(node, positions)
        if hedge:
            self._stats.hedges += 1
        elif again:
            self._stats.failovers += 1
        else:
            self._budget.earn()
        for start in range(0, len(positions), limits.BATCH_ITEMS_MAX):
            batch = positions[start : start + limits.BATCH_ITEMS_MAX]
            reading = self._reading(job, node, batch)
            reading.hedged = hedge
            request = job.call.request([job.blocks[position] for position in batch], node)
            self._running[job.group.create_task(reading.run(request, job.end))] = reading

    def _reading(self, job: _Job, node: str, positions: Sequence[int]) -> Reading:
        reading = Reading(self._caller, job.members[node], positions)
        sizes = job.call.frame_sizes
        reading.assembly = Assembly(
            [Expected(position, job.blocks[position].group, sizes) for position in positions],
            job.destination,
            claim=lambda position: job.plan.claim(position, reading),
            done=lambda position, outcome: job.plan.done(position, reading, outcome),
        )
        return reading

    async def _wait(self, job: _Job) -> None:
        """Wait until an answer is over, or something else is to be done."""
        now = time.monotonic()
        timeout = max(min(job.end, now + _TICK_S, self._hedge_at(), job.plan.due()) - now, 0)
        if not self._running:
            await asyncio.sleep(timeout)
            return
        done, _ = await asyncio.wait(
            self._running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            reading = self._running.pop(task)
            self._count(reading)
            error = None if task.cancelled() else task.result()
            if error is not None:
                self._take_error(job, reading, error)

    def _count(self, reading: Reading) -> None:
        """An answer is over: count what came of it."""
        self._bytes[reading.member.zone] += reading.assembly.payload_bytes
        self._stats.corrupt_blocks += reading.assembly.corrupt

    def _take_error(self, job: _Job, reading: Reading, error: KvorumError) -> None:
        self._errors.append(error)
        if isinstance(error, OverloadedError):
            wait_s = error.retry_after_s or _BUSY_S * random.uniform(0.5, 1.5)  # noqa: S311  # jitter
            until = time.monotonic() + wait_s
            job.plan.postpone(reading.member.name, reading.positions, until)

    def _drop_stalled(self) -> None:
        """Give up on answers that made no progress for long; their blocks go elsewhere."""
        now = time.monotonic()
        for task, reading in self._running.items():
            if not reading.dropped and now - reading.progress_at >= self._settings.stall_s:
                self._health.stalled(reading.member.name)
                reading.drop()
                task.cancel()

    def _slow_at(self, reading: Reading) -> float:
        """Return when an answer that has not begun is slower than the node usually is."""
        return reading.started_at + self._health.of(reading.member.name).reads.hedge_delay_s

    def _is_slow(self, reading: Reading) -> bool:
        return not reading.begun and time.monotonic() >= self._slow_at(reading)

    def _hedge_at(self) -> float:
        """Return when the first answer that has not begun becomes slow."""
        waited_for = (r for r in self._running.values() if not (r.begun or r.hedged or r.dropped))
        return min(map(self._slow_at, waited_for), default=float("inf"))

    def _hedge(self, job: _Job) -> None:
        """Ask another replica beside those that have not begun to answer in their usual time."""
        for reading in list(self._running.values()):
            if reading.hedged or not self._is_slow(reading):
                continue
            reading.hedged = True
            for node, positions in job.plan.hedge(reading.positions).items():
                if self._budget.spend():
                    self._start(job, node, positions, hedge=True)
