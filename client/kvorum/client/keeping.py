"""Keeping: delete, touch, pin, unpin and stat, at every replica of the blocks."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from kvorum.client.caller import Caller, namespace_ref, request_context
from kvorum.client.pool import Link
from kvorum.client.reasons import miss_of, reason_of
from kvorum.client.results import BlockStat, MissReason
from kvorum.client.view import View
from kvorum.core import limits
from kvorum.core.errors import KvorumError, UnavailableError
from kvorum.placement import Member
from kvorum.v1 import cache_pb2, common_pb2

T = TypeVar("T")

Ask: TypeAlias = "Callable[[Link, dict[str, Any]], tuple[Any, Any]]"
"""Returns the method of a link and the request, given the fields that all requests share."""


@dataclass(frozen=True, slots=True)
class BlockName:
    """A block as the calls here name it: position in the chain, key and slot."""

    index: int
    key: bytes
    slot: int


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What the replicas of one block said, nearest first, and the first error if one failed."""

    given: tuple[tuple[Member, T], ...]
    error: KvorumError | None

    def require(self) -> tuple[tuple[Member, T], ...]:
        """Return what was said.

        Raises:
            KvorumError: no replica answered.
        """
        if not self.given:
            raise self.error or UnavailableError("no replica of the block's slot can be reached")
        return self.given


class Keeping:
    """Calls about blocks that carry no payload.

    Args:
        caller: calls nodes.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def delete(self, view: View, blocks: Sequence[BlockName], end: float) -> int:
        """Delete blocks and what continues them; return how many went.

        Raises:
            KvorumError: no replica of a block could be told.
        """
        answers = await self._ask_all(
            view,
            blocks,
            lambda link, common: (link.cache.Delete, cache_pb2.DeleteRequest(**common)),
            lambda response: response.deleted_blocks,
            end,
        )
        return sum(max(count for _, count in answer.require()) for answer in answers)

    async def touch(
        self, view: View, blocks: Sequence[BlockName], lease_s: float, end: float
    ) -> int:
        """Mark blocks as used and renew their lease; return how many are there."""
        lease_ms = round(lease_s * 1000)
        answers = await self._ask_all(
            view,
            blocks,
            lambda link, common: (
                link.cache.Touch,
                cache_pb2.TouchRequest(**common, lease_ms=lease_ms),
            ),
            lambda response: response.misses,
            end,
        )
        return sum(any(not miss for _, miss in answer.given) for answer in answers)

    async def pin(
        self, view: View, blocks: Sequence[BlockName], end: float, *, pinned: bool
    ) -> int:
        """Pin or unpin blocks; return how many of them at least one replica holds.

        Raises:
            KvorumError: no replica of a block could be told.
        """

        def ask(link: Link, common: dict[str, Any]) -> tuple[Any, Any]:
            if pinned:
                return link.cache.Pin, cache_pb2.PinRequest(**common)
            return link.cache.Unpin, cache_pb2.UnpinRequest(**common)

        answers = await self._ask_all(view, blocks, ask, lambda response: response.misses, end)
        return sum(any(not miss for _, miss in answer.require()) for answer in answers)

    async def stat(self, view: View, blocks: Sequence[BlockName], end: float) -> list[BlockStat]:
        """Describe blocks; what no replica describes has a reason."""
        answers = await self._ask_all(
            view,
            blocks,
            lambda link, common: (link.cache.Stat, cache_pb2.StatRequest(**common)),
            lambda response: response.stats,
            end,
        )
        return [_stat(block, answer) for block, answer in zip(blocks, answers, strict=True)]

    async def _ask_all(
        self,
        view: View,
        blocks: Sequence[BlockName],
        ask: Ask,
        items_of: Callable[[Any], Sequence[T]],
        end: float,
    ) -> list[Answers[T]]:
        """Ask every replica of every block; return the answers for each block."""
        by_node: defaultdict[Member, list[int]] = defaultdict(list)
        replicas = [view.replicas_of(block.slot) for block in blocks]
        for position, members in enumerate(replicas):
            for member in members:
                by_node[member].append(position)
        given: dict[tuple[int, Member], T | KvorumError] = {}
        async with asyncio.TaskGroup() as group:
            for member, positions in by_node.items():
                for start in range(0, len(positions), limits.BATCH_ITEMS_MAX):
                    batch = positions[start : start + limits.BATCH_ITEMS_MAX]
                    names = [blocks[position] for position in batch]
                    call = partial(self._ask_one, view, member, names, ask, items_of, end)
                    group.create_task(_collect(call, member, batch, given))
        return [
            _answers(members, [given[position, member] for member in members])
            for position, members in enumerate(replicas)
        ]

    async def _ask_one(
        self,
        view: View,
        member: Member,
        blocks: Sequence[BlockName],
        ask: Ask,
        items_of: Callable[[Any], Sequence[T]],
        end: float,
    ) -> Sequence[T]:
        """Ask one node about some blocks.

        Raises:
            KvorumError: what the node answered, or what became of the call.
        """
        if not self._caller.health.allows(member.name):
            raise UnavailableError(f"{member.name} does not answer")
        common = {
            "context": request_context(view.map_digest),
            "namespace": namespace_ref(view.namespace, view.fingerprint_digest),
            "blocks": [common_pb2.BlockRef(key=block.key, slot=block.slot) for block in blocks],
        }
        method, request = ask(self._caller.link(member), common)
        response = await self._caller.unary(member, method, request, end - time.monotonic())
        items = items_of(response)
        if len(items) != len(blocks):
            raise UnavailableError(f"{member.name} answered another number of items")
        return items


async def _collect(
    call: Callable[[], Any],
    member: Member,
    batch: Sequence[int],
    given: dict[tuple[int, Member], T | KvorumError],
) -> None:
    try:
        items: Sequence[T | KvorumError] = await call()
    except KvorumError as error:
        items = [error] * len(batch)
    given.update({(position, member): item for position, item in zip(batch, items, strict=True)})


def _answers(members: Sequence[Member], items: Sequence[T | KvorumError]) -> Answers[T]:
    given, error = [], None
    for member, item in zip(members, items, strict=True):
        if isinstance(item, KvorumError):
            error = error or item
        else:
            given.append((member, item))
    return Answers(tuple(given), error)


def _stat(block: BlockName, answer: Answers[cache_pb2.BlockStat]) -> BlockStat:
    holders = [(member, stat) for member, stat in answer.given if not stat.miss]
    if not holders:
        reasons = [miss_of(stat.miss) for _, stat in answer.given]
        unknown = reason_of(answer.error) if answer.error else MissReason.NODE_DOWN
        return BlockStat(block.index, block.key, reasons[0] if reasons else unknown)
    nearest = holders[0][1]
    return BlockStat(
        index=block.index,
        key=block.key,
        reason=None,
        size_bytes=nearest.size_bytes,
        parts=nearest.parts,
        group=nearest.group,
        age_s=nearest.age_ms / 1000,
        idle_s=nearest.idle_ms / 1000,
        lease_s=nearest.lease_ms / 1000,
        pinned=nearest.pinned,
        digest=nearest.digest,
        zones=tuple(member.zone for member, _ in holders),
    )
