"""Fetch: brings the blocks of a hit from the nearest replicas that deliver them, in time.

Blocks are grouped by node and stream in parallel. What a node misses, spoils or holds up is asked
of the next replica. A block is written by one answer at a time, so bytes never mix.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvorum.client.assembly import Assembly, Expected
from kvorum.client.caller import Caller
from kvorum.client.destinations import Destination
from kvorum.client.hedge import HedgeBudget
from kvorum.client.reading import GetCall, Reading
from kvorum.client.results import LocatedBlock, MissReason
from kvorum.client.settings import ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.view import View
from kvorum.core import limits
from kvorum.core.errors import KvorumError
from kvorum.placement import Member

_TICK_S: Final = 0.02


@dataclass(slots=True)
class _Block:
    """One block of the hit.

    Attributes:
        located: what the lookup found.
        untried: replicas that were not asked for it yet, nearest first.
        tried: whether a replica was asked for it.
        open: answers under way that may still bring it.
        owner: the answer that writes it now.
        received: whether it is there, intact.
        reason: why the last answer did not bring it.
    """

    located: LocatedBlock
    untried: list[Member]
    tried: bool = False
    open: int = 0
    owner: Reading | None = None
    received: bool = False
    reason: MissReason = MissReason.TIMEOUT


@dataclass(slots=True)
class FetchOutcome:
    """What a fetch came to.

    Attributes:
        blocks: blocks from the first that arrived intact.
        reason: why the next one did not; None if all arrived.
        bytes_by_zone: payload bytes that came from each zone.
        errors: errors of whole calls.
    """

    blocks: int
    reason: MissReason | None
    bytes_by_zone: Mapping[str, int]
    errors: list[KvorumError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Job:
    """What all calls of one fetch have in common."""

    group: asyncio.TaskGroup
    destination: Destination
    call: GetCall
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
        self._blocks: list[_Block] = []
        self._running: dict[asyncio.Task[KvorumError | None], Reading] = {}
        self._bytes: Counter[str] = Counter()
        self._errors: list[KvorumError] = []

    async def run(
        self,
        view: View,
        blocks: Sequence[LocatedBlock],
        destination: Destination,
        call: GetCall,
        end: float,
    ) -> FetchOutcome:
        """Bring blocks; never raises for a cluster in trouble. Nothing is written afterwards.

        Args:
            view: what is known of the cluster.
            blocks: what to bring, a prefix.
            destination: where the bytes go; the caller finishes it.
            call: what all calls of this fetch have in common.
            end: when to stop, in seconds of the monotonic clock.
        """
        self._blocks = [
            _Block(block, _candidates(view, block)[: self._settings.attempts_max])
            for block in blocks
        ]
        async with asyncio.TaskGroup() as group:
            job = _Job(group, destination, call, end)
            while time.monotonic() < end:
                self._assign(job)
                if not self._running or self._settled():
                    break
                await self._wait(end)
                self._drop_stalled()
                self._hedge(job)
            for task in self._running:
                task.cancel()
        for reading in self._running.values():
            self._end(reading, None)
        return self._outcome()

    # ------------------------------------------------------------ deciding

    def _assign(self, job: _Job) -> None:
        """Ask for every block that no answer under way can bring, up to the first hopeless one."""
        by_node: defaultdict[Member, list[int]] = defaultdict(list)
        for position, block in enumerate(self._blocks):
            if block.received or block.open:
                continue
            member = self._next_replica(block)
            if member is None:
                break
            by_node[member].append(position)
        for member, positions in by_node.items():
            for start in range(0, len(positions), limits.BATCH_ITEMS_MAX):
                batch = positions[start : start + limits.BATCH_ITEMS_MAX]
                self._start(job, member, batch)

    def _next_replica(self, block: _Block) -> Member | None:
        """Take the nearest replica that was not tried and whose breaker is closed."""
        while block.untried:
            member = block.untried.pop(0)
            if self._health.allows(member.name):
                return member
            block.reason = MissReason.NODE_DOWN
        return None

    def _start(
        self, job: _Job, member: Member, positions: Sequence[int], *, hedge: bool = False
    ) -> None:
        if hedge:
            self._stats.hedges += 1
        elif any(self._blocks[position].tried for position in positions):
            self._stats.failovers += 1
        reading = Reading(self._caller, member, positions)
        reading.hedged = hedge
        reading.assembly = Assembly(
            [
                Expected(position, self._blocks[position].located.group, job.call.frame_sizes)
                for position in positions
            ],
            job.destination,
            claim=lambda position: self._claim(position, reading),
            done=lambda position, outcome: self._done(position, reading, outcome),
        )
        for position in positions:
            self._blocks[position].open += 1
            self._blocks[position].tried = True
        request = job.call.request([self._blocks[p].located for p in positions], member.name)
        self._budget.earn()
        task = job.group.create_task(reading.run(request, job.end))
        self._running[task] = reading

    def _settled(self) -> bool:
        """Return whether all blocks arrived, or all before one that cannot arrive any more."""
        for block in self._blocks:
            if not block.received:
                return not block.open and not block.untried
        return True

    async def _wait(self, end: float) -> None:
        timeout = min(end, time.monotonic() + _TICK_S, self._hedge_at()) - time.monotonic()
        done, _ = await asyncio.wait(
            self._running, timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            reading = self._running.pop(task)
            self._end(reading, None if task.cancelled() else task.result())

    def _end(self, reading: Reading, error: KvorumError | None) -> None:
        """An answer is over."""
        self._bytes[reading.member.zone] += reading.assembly.payload_bytes
        self._stats.corrupt_blocks += reading.assembly.corrupt
        if error is not None:
            self._errors.append(error)

    def _drop_stalled(self) -> None:
        """Give up on answers that made no progress for long; their blocks go elsewhere."""
        now = time.monotonic()
        for task, reading in self._running.items():
            if not reading.dropped and now - reading.progress_at >= self._settings.stall_s:
                self._health.late(reading.member.name)
                reading.drop()
                task.cancel()

    def _hedge_at(self) -> float:
        """Return when the first answer that has not begun becomes slow."""
        times = (
            reading.started_at + self._health.of(reading.member.name).reads.hedge_delay_s
            for reading in self._running.values()
            if not (reading.begun or reading.hedged or reading.dropped)
        )
        return min(times, default=float("inf"))

    def _hedge(self, job: _Job) -> None:
        now = time.monotonic()
        for reading in list(self._running.values()):
            delay_s = self._health.of(reading.member.name).reads.hedge_delay_s
            if reading.begun or reading.hedged or now < reading.started_at + delay_s:
                continue
            reading.hedged = True
            by_node = self._others(reading.positions)
            if by_node and self._budget.spend():
                for member, positions in by_node.items():
                    for position in positions:
                        self._blocks[position].untried.remove(member)
                    self._start(job, member, positions, hedge=True)

    def _others(self, positions: Iterable[int]) -> dict[Member, list[int]]:
        """Return the next replica of each block that did not arrive yet."""
        by_node: defaultdict[Member, list[int]] = defaultdict(list)
        for position in positions:
            block = self._blocks[position]
            allowed = (m for m in block.untried if self._health.allows(m.name))
            member = next(allowed, None)
            if not block.received and member is not None:
                by_node[member].append(position)
        return dict(by_node)

    # ------------------------------------------------------------ told by answers

    def _claim(self, position: int, reading: Reading) -> bool:
        block = self._blocks[position]
        if block.received or block.owner is not None:
            return False
        block.owner = reading
        return True

    def _done(self, position: int, reading: Reading, outcome: MissReason | bool) -> None:
        block = self._blocks[position]
        block.open -= 1
        if block.owner is reading:
            block.owner = None
        if outcome is True:
            block.received = True
        elif isinstance(outcome, MissReason):
            block.reason = outcome

    def _outcome(self) -> FetchOutcome:
        for position, block in enumerate(self._blocks):
            if not block.received:
                reason = MissReason.TIMEOUT if block.open else block.reason
                return FetchOutcome(position, reason, self._bytes, self._errors)
        return FetchOutcome(len(self._blocks), None, self._bytes, self._errors)


def _candidates(view: View, block: LocatedBlock) -> list[Member]:
    """Return the nodes that may hold a block: those that said so, then the other replicas."""
    replicas = view.replicas_of(block.slot)
    members = {member.name: member for member in view.map.members}
    known = [members[name] for name in block.nodes if name in members]
    holders = list(view.map.nearest(known, view.zone))
    return holders + [member for member in replicas if member not in holders]
