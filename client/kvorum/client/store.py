"""Store: sends blocks to the nearest replica that takes them, parts to the first that does.

The blocks of a segment go to one replica, in order, in batches. What that replica cannot take is
offered to the next one, until the deadline.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvorum.client.caller import Caller
from kvorum.client.results import StoredBlock, StoreOutcome
from kvorum.client.settings import ClientSettings
from kvorum.client.sources import Source
from kvorum.client.stats import ClientStats
from kvorum.client.writing import PutCall, put
from kvorum.core import limits
from kvorum.core.errors import (
    ChecksumError,
    IncarnationError,
    InternalError,
    KvorumError,
    MapMismatchError,
    NamespaceNotFoundError,
    NotOwnerError,
    UnavailableError,
)
from kvorum.core.keys import Chain
from kvorum.placement import Member
from kvorum.v1 import cache_pb2
from kvorum.v1.frames import Frame
from kvorum.v1.status import from_detail

_GROUPS_MAX: Final = 4
_BUSY_S: Final = 0.03
_ELSEWHERE: Final = (
    ChecksumError,
    IncarnationError,
    InternalError,
    MapMismatchError,
    NamespaceNotFoundError,
    NotOwnerError,
)
"""Errors that are final at one node and need not be at another."""


@dataclass(slots=True)
class _Block:
    """One block to store.

    Attributes:
        index: position in the chain.
        bytes: its size.
        result: what became of it; None while that is open.
        error: why the last replica did not take it.
    """

    index: int
    bytes: int
    result: StoredBlock | None = None
    error: KvorumError | None = None


@dataclass(slots=True)
class _Group:
    """Blocks with the same replicas.

    Attributes:
        replicas: where they may go, in this order.
        blocks: the blocks, in order.
    """

    replicas: tuple[Member, ...]
    blocks: list[_Block] = field(default_factory=list)

    def open(self) -> list[_Block]:
        """Return the blocks whose result is open."""
        return [block for block in self.blocks if block.result is None]


@dataclass(frozen=True, slots=True)
class _Job:
    """What all batches of one store have in common."""

    call: PutCall
    chain: Chain
    source: Source
    end: float


class Store:
    """Stores blocks.

    Args:
        caller: calls nodes.
        settings: waits and bounds.
        stats: counts.
    """

    def __init__(self, caller: Caller, settings: ClientSettings, stats: ClientStats) -> None:
        self._caller = caller
        self._health = caller.health
        self._settings = settings
        self._stats = stats

    async def run(
        self,
        call: PutCall,
        chain: Chain,
        source: Source,
        indices: Sequence[int],
        end: float,
    ) -> list[StoredBlock]:
        """Store blocks; never raises for a cluster in trouble.

        Args:
            call: what all calls of this store have in common.
            chain: keys of the prompt.
            source: the bytes of the blocks.
            indices: positions in the chain of the blocks to store, in order.
            end: when to stop, in seconds of the monotonic clock.
        """
        groups: dict[tuple[Member, ...], _Group] = {}
        by_slot: dict[int, _Group] = {}
        for index in indices:
            slot = chain.slot(index)
            if slot not in by_slot:
                replicas = call.view.store_order(slot)
                by_slot[slot] = groups.setdefault(replicas, _Group(replicas))
            size = sum(source.frame_sizes(index - call.first_block))
            by_slot[slot].blocks.append(_Block(index, size))
        places = asyncio.Semaphore(_GROUPS_MAX)
        async with asyncio.TaskGroup() as tasks:
            for group in groups.values():
                job = _Job(call, chain, source, end)
                tasks.create_task(self._store_group(group, job, places))
        blocks = [block for group in groups.values() for block in group.blocks]
        return [_result(block) for block in sorted(blocks, key=lambda block: block.index)]

    async def _store_group(self, group: _Group, job: _Job, places: asyncio.Semaphore) -> None:
        """Offer the blocks of a group to one replica after the other, as often as is allowed."""
        tried: set[str] = set()
        async with places:
            for attempt in range(self._settings.attempts_max):
                if not group.open():
                    return
                untried = [m for m in self._order(group.replicas) if m.name not in tried]
                if not untried and tried:
                    await self._pause(group, attempt, job)
                    tried.clear()
                    untried = self._order(group.replicas)
                if not untried or time.monotonic() >= job.end:
                    return
                if attempt:
                    self._stats.failovers += 1
                tried.add(untried[0].name)
                await self._store_at(untried[0], group.open(), job)

    async def _pause(self, group: _Group, attempt: int, job: _Job) -> None:
        """Every replica has refused: give them time before they are asked again."""
        hints = [block.error.retry_after_s for block in group.open() if block.error is not None]
        wait_s = max((hint for hint in hints if hint), default=_BUSY_S * 2**attempt)
        jitter = random.uniform(0.5, 1.5)  # noqa: S311  # spreads load, guards nothing
        await asyncio.sleep(max(min(wait_s * jitter, job.end - time.monotonic()), 0))

    def _order(self, replicas: Sequence[Member]) -> list[Member]:
        """Return the replicas that are worth trying; those in doubt or draining come last."""
        now, health = time.monotonic(), self._health

        def misgivings(member: Member) -> bool:
            return health.doubted(member.name) or health.of(member.name).draining_until > now

        return sorted((m for m in replicas if health.allows(m.name)), key=misgivings)

    async def _store_at(self, member: Member, blocks: Sequence[_Block], job: _Job) -> None:
        for batch in self._batches(blocks):
            indices = [block.index for block in batch]
            opening = await job.call.opening(job.chain, job.source, indices)
            payload = self._counted(member.zone, job.call.payload(job.source, indices))
            try:
                stall_s = self._settings.stall_s
                results = await put(self._caller, member, opening, payload, job.end, stall_s)
            except KvorumError as error:
                for block in batch:
                    _fail(block, error)
                return
            for block, result in zip(batch, results, strict=True):
                _take(block, result)

    def _counted(
        self, zone: str, payload: Iterable[Frame[cache_pb2.PutRequest]]
    ) -> Iterator[Frame[cache_pb2.PutRequest]]:
        for frame in payload:
            yield frame
            self._stats.stored_bytes_by_zone[zone] += sum(piece.nbytes for piece in frame.pieces)

    def _batches(self, blocks: Sequence[_Block]) -> Iterator[list[_Block]]:
        batch: list[_Block] = []
        size = 0
        for block in blocks:
            full = len(batch) == limits.BATCH_ITEMS_MAX
            if batch and (full or size + block.bytes > self._settings.put_batch_bytes):
                yield batch
                batch, size = [], 0
            batch.append(block)
            size += block.bytes
        if batch:
            yield batch


def may_help_elsewhere(error: KvorumError) -> bool:
    """Return whether another replica may take what one refused with `error`."""
    return error.retryable or isinstance(error, _ELSEWHERE)


def _take(block: _Block, result: cache_pb2.PutResult) -> None:
    if result.outcome in (
        cache_pb2.PUT_OUTCOME_STORED,
        cache_pb2.PUT_OUTCOME_ALREADY_STORED,
        cache_pb2.PUT_OUTCOME_STAGED,
    ):
        block.result = StoredBlock(
            index=block.index,
            outcome=StoreOutcome(result.outcome),
            group=result.group,
            zones=tuple(result.zones),
            replicas=result.replicas,
        )
        return
    _fail(block, from_detail(result.error))


def _fail(block: _Block, error: KvorumError) -> None:
    block.error = error
    if not may_help_elsewhere(error):
        block.result = _refused(block.index, error)


def _refused(index: int, error: KvorumError) -> StoredBlock:
    return StoredBlock(index=index, outcome=StoreOutcome.REFUSED, error=error)


def _result(block: _Block) -> StoredBlock:
    if block.result is not None:
        return block.result
    error = block.error or UnavailableError("no replica of the block's slot can be reached")
    return _refused(block.index, error)
