"""Lookup: asks the nearest replicas for a prompt's longest prefix, the others when that pays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from kvorum.client.caller import Caller, namespace_ref, request_context
from kvorum.client.hedge import HedgeBudget
from kvorum.client.prefix import Found, PrefixMerge, Seen, Span
from kvorum.client.reasons import miss_of, reason_of
from kvorum.client.results import Hit, LocatedBlock, MissReason, NodeLease
from kvorum.client.stats import ClientStats
from kvorum.client.view import View
from kvorum.core import limits
from kvorum.core.errors import KvorumError
from kvorum.core.keys import Chain
from kvorum.core.layout import BlockLayout
from kvorum.placement import Member
from kvorum.v1 import cache_pb2


@dataclass(slots=True)
class _Round:
    """One lookup under way.

    Attributes:
        merge: what is known so far.
        members: the nodes that may be asked, by name.
        asked: when each node was asked, in seconds of the clock.
        pending: the calls that run.
        leases: promises so far, each with the time at which it was asked for.
        hedge_refused: whether a hedge was due and not paid for.
    """

    merge: PrefixMerge
    members: dict[str, Member]
    asked: dict[str, float] = field(default_factory=dict)
    pending: dict[asyncio.Task[cache_pb2.LookupResponse | KvorumError], str] = field(
        default_factory=dict
    )
    leases: list[tuple[float, NodeLease]] = field(default_factory=list)
    hedge_refused: bool = False


class Lookup:
    """Finds prefixes.

    Args:
        caller: calls nodes.
        budget: pays for hedges.
        failover_s: seconds without an answer after which another replica is asked in any case.
        stats: counts.
    """

    def __init__(
        self, caller: Caller, budget: HedgeBudget, failover_s: float, stats: ClientStats
    ) -> None:
        self._caller = caller
        self._health = caller.health
        self._budget = budget
        self._failover_s = failover_s
        self._stats = stats

    async def run(self, view: View, chain: Chain, budget_s: float, lease_s: float) -> Hit:
        """Return the longest prefix that could be found within the budget; never raises.

        Args:
            view: what is known of the cluster.
            chain: keys of the prompt; at least one block.
            budget_s: seconds to wait at most.
            lease_s: seconds for which to lease the blocks.
        """
        end = time.monotonic() + budget_s
        segments = view.segments(chain)[: _segments_max(chain)]
        members = {member.name: member for segment in segments for member in segment.replicas}
        spans = [
            Span(segment.begin, segment.end, self._order(segment.replicas)) for segment in segments
        ]
        state = _Round(PrefixMerge(spans), members)
        request = cache_pb2.LookupRequest(
            context=request_context(view.map_digest),
            namespace=namespace_ref(view.namespace, view.fingerprint_digest),
            keys=chain.keys[: spans[-1].end],
            lease_ms=round(lease_s * 1000),
            describe=True,
        )
        for node in members:
            if not self._health.allows(node):
                state.merge.fail(node, MissReason.NODE_DOWN)
        async with asyncio.TaskGroup() as group:
            self._budget.earn()
            self._ask(group, state, state.merge.first(), request, end)
            self._ask_suspects(group, state, request, end)
            await self._collect(group, state, request, end)
            for task in state.pending:
                task.cancel()
        self._note_pending(state)
        return _hit(view, chain, state)

    def _order(self, replicas: Sequence[Member]) -> tuple[str, ...]:
        """Return the names of replicas, nearest first but for those in doubt."""
        return tuple(sorted((member.name for member in replicas), key=self._health.doubted))

    def _ask(
        self,
        group: asyncio.TaskGroup,
        state: _Round,
        nodes: Iterable[str],
        request: cache_pb2.LookupRequest,
        end: float,
    ) -> None:
        for node in nodes:
            now = time.monotonic()
            state.asked[node] = now
            call = self._call(state.members[node], request, end - now)
            state.pending[group.create_task(call)] = node

    def _ask_suspects(
        self,
        group: asyncio.TaskGroup,
        state: _Round,
        request: cache_pb2.LookupRequest,
        end: float,
    ) -> None:
        """Ask another replica at once beside a node that was late or failed just before."""
        for node in list(state.pending.values()):
            more = state.merge.wanted(state.asked)[:1]
            if more and self._health.of(node).breaker.suspect and self._budget.spend():
                self._stats.hedges += 1
                self._ask(group, state, more, request, end)

    async def _call(
        self, member: Member, request: cache_pb2.LookupRequest, timeout_s: float
    ) -> cache_pb2.LookupResponse | KvorumError:
        started = time.monotonic()
        try:
            method = self._caller.link(member).cache.Lookup
            answer = await self._caller.unary(member, method, request, timeout_s)
        except KvorumError as error:
            return error
        self._health.of(member.name).lookups.add(time.monotonic() - started)
        return answer

    async def _collect(
        self,
        group: asyncio.TaskGroup,
        state: _Round,
        request: cache_pb2.LookupRequest,
        end: float,
    ) -> None:
        """Take answers until nothing that may still come could lengthen the prefix."""
        merge = state.merge
        while hopes := merge.hopes(state.pending.values()):
            now = time.monotonic()
            if now >= end:
                return
            hedge_at = self._hedge_at(state, hopes)
            done, _ = await asyncio.wait(
                state.pending,
                timeout=max(min(end, hedge_at) - now, 0),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                self._take(state, state.pending.pop(task), task.result())
            if merge.short() and (more := merge.wanted(state.asked)):
                self._stats.failovers += len(more)
                self._ask(group, state, more, request, end)
            elif not done and now < end and time.monotonic() >= hedge_at:
                self._hedge(group, state, request, end)

    def _hedge_at(self, state: _Round, hopes: Sequence[str]) -> float:
        """Return when the node asked last has become slow; never if there is no other to ask."""
        if not state.merge.wanted(state.asked):
            return float("inf")
        last = max(hopes, key=lambda node: state.asked[node])
        if state.hedge_refused:
            return state.asked[last] + self._failover_s
        return state.asked[last] + self._health.of(last).lookups.hedge_delay_s

    def _hedge(
        self,
        group: asyncio.TaskGroup,
        state: _Round,
        request: cache_pb2.LookupRequest,
        end: float,
    ) -> None:
        """Ask a further replica: as a hedge if the budget has one, else when that is no hedge."""
        if state.hedge_refused:
            self._stats.failovers += 1
        elif self._budget.spend():
            self._stats.hedges += 1
        else:
            state.hedge_refused = True
            return
        state.hedge_refused = False
        self._ask(group, state, state.merge.wanted(state.asked)[:1], request, end)

    def _take(
        self, state: _Round, node: str, answer: cache_pb2.LookupResponse | KvorumError
    ) -> None:
        if isinstance(answer, KvorumError):
            state.merge.fail(node, reason_of(answer))
            return
        shard = state.members[node].shard
        state.merge.answer(node, [_seen(block, shard) for block in answer.blocks])
        if answer.HasField("lease"):
            lease = NodeLease(
                node,
                answer.lease.expires_unix_ms,
                answer.lease.duration_ms,
                answer.lease.incarnation,
            )
            state.leases.append((state.asked[node], lease))

    def _note_pending(self, state: _Round) -> None:
        """A node that did not answer in the time in which it usually does was late."""
        now = time.monotonic()
        for node in state.pending.values():
            if now - state.asked[node] >= self._health.of(node).lookups.hedge_delay_s:
                self._health.late(node)


def _segments_max(chain: Chain) -> int:
    """Return how many segments one lookup may ask for."""
    return limits.LOOKUP_BLOCKS_MAX // chain.blocks_per_segment


def _seen(block: cache_pb2.BlockState, shard: int) -> Seen | None:
    if block.shard != shard:
        return None
    if block.miss:
        return Seen(miss_of(block.miss))
    return Seen(None, block.group, block.size_bytes, block.parts)


def _hit(view: View, chain: Chain, state: _Round) -> Hit:
    for node in state.pending.values():
        state.merge.fail(node, MissReason.TIMEOUT)
    usable = _usable(view, state.merge.found)
    reason = state.merge.reason() if usable == len(state.merge.found) else MissReason.FINGERPRINT
    blocks = tuple(
        LocatedBlock(
            index=index,
            key=chain.keys[index],
            slot=chain.slot(index),
            group=found.seen.group,
            size_bytes=found.seen.size_bytes,
            parts=found.seen.parts,
            nodes=found.nodes,
        )
        for index, found in enumerate(state.merge.found[:usable])
    )
    holders = {node for block in blocks for node in block.nodes}
    leases = [(asked, lease) for asked, lease in state.leases if lease.node in holders]
    return Hit(
        tokens=len(blocks) * chain.block_tokens,
        blocks=blocks,
        reason=reason,
        lease_until=min((asked + x.duration_ms / 1000 for asked, x in leases), default=None),
        namespace=view.namespace,
        fingerprint_digest=view.fingerprint_digest,
        leases=tuple(lease for _, lease in leases),
    )


def _usable(view: View, found: Collection[Found]) -> int:
    """Return how many blocks from the first have the parts and sizes that the fingerprint says."""
    fingerprint = view.fingerprint
    size = None
    if fingerprint.layout != "opaque":
        size = BlockLayout.of(fingerprint).part_bytes * fingerprint.parts
    for index, (seen, _) in enumerate(found):
        fits = seen.size_bytes == size if size is not None else seen.size_bytes > 0
        if not fits or seen.parts != fingerprint.parts or not seen.group:
            return index
    return len(found)
