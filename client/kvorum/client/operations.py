"""Operations: what the calls of a client do once their arguments were checked.

Here the parts meet: the keeper's view, lookups, fetches, stores, and a second try after a refresh
where the cluster said that the view was out of date.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvorum.client.caller import Caller
from kvorum.client.destinations import Destination, part_layout
from kvorum.client.fetch import Fetch
from kvorum.client.finder import Target
from kvorum.client.health import Health
from kvorum.client.hedge import HedgeBudget
from kvorum.client.keeper import Keeper
from kvorum.client.keeping import BlockName, Keeping
from kvorum.client.lookup import Lookup
from kvorum.client.nodes import NodeStatus, Topology
from kvorum.client.pool import Pool
from kvorum.client.reading import GetCall
from kvorum.client.reasons import reason_of
from kvorum.client.results import BlockStat, FetchOutcome, Hit, StoredBlock, StoreOutcome
from kvorum.client.settings import ClientSettings
from kvorum.client.sources import Source
from kvorum.client.stats import ClientStats
from kvorum.client.status import node_statuses
from kvorum.client.store import Store
from kvorum.client.tensors import Array
from kvorum.client.view import View, to_topology
from kvorum.client.writing import PutCall
from kvorum.core.errors import (
    KvorumError,
    MapMismatchError,
    NamespaceNotFoundError,
    NotOwnerError,
)

_OUT_OF_DATE: Final = (MapMismatchError, NamespaceNotFoundError, NotOwnerError)


@dataclass(frozen=True, slots=True)
class StorePlan:
    """What a caller wants stored.

    Attributes:
        tokens: token ids of the prompt.
        source: the bytes of its blocks from `first_block` on.
        first_block: the first block to store.
        writer: name of the group of workers whose parts belong together.
        overwrite: whether blocks that are there are replaced.
    """

    tokens: Array
    source: Source
    first_block: int
    writer: str
    overwrite: bool


class Operations:
    """All operations of one client.

    Attributes:
        stats: what was done so far.

    Args:
        target: what the client was made for.
        part: which part of each block it reads and writes.
        pool: the channels.
        metadata: credentials of every call.
        settings: deadlines, bounds and thresholds.
    """

    def __init__(
        self,
        target: Target,
        part: int,
        pool: Pool,
        metadata: Sequence[tuple[str, str]],
        settings: ClientSettings,
    ) -> None:
        self.stats = ClientStats()
        self._target = target
        self._part = part
        self._settings = settings
        self._caller = Caller(pool, Health(settings, self.stats), metadata, self._notice)
        self._keeper = Keeper(target, self._caller, settings, self.stats)
        budget = HedgeBudget(settings)
        self._lookup = Lookup(self._caller, budget, settings.hedge_max_s, self.stats)
        self._fetch_budget = HedgeBudget(settings)
        self._store = Store(self._caller, settings, self.stats)
        self._keeping = Keeping(self._caller)

    def _notice(self, error: KvorumError) -> None:
        self._keeper.notice(error)

    def start(self) -> None:
        """Begin to look for the cluster, in the background."""
        self._keeper.start()

    async def connect(self, end: float) -> None:
        """Reach the cluster and open the namespace, and connect to the nodes that are up.

        Raises:
            KvorumError: why that cannot be.
        """
        view = await self._keeper.connect(max(end - time.monotonic(), 0.0))
        wait_s = min(end - time.monotonic(), self._settings.probe_timeout_s)
        addresses = [member.address for member in view.map.members]
        await self._caller.pool.connect(addresses, max(wait_s, 0.0))

    async def lookup(self, tokens: Array, budget_s: float, lease_s: float) -> Hit:
        """Find the longest prefix of a prompt with at least one full block; never raises."""
        start = time.monotonic()
        try:
            view = await self._keeper.get(budget_s)
        except KvorumError as error:
            return Hit(0, reason=reason_of(error))
        waited_s = time.monotonic() - start
        return await self._lookup.run(view, view.chain(tokens), budget_s - waited_s, lease_s)

    async def fetch(
        self, hit: Hit, destination: Destination, layers: tuple[int, int] | None, end: float
    ) -> FetchOutcome:
        """Bring the blocks of a hit; never raises. The caller finishes the destination."""
        try:
            view = await self._keeper.get(max(end - time.monotonic(), 0.0))
        except KvorumError as error:
            return FetchOutcome(0, reason_of(error), {})
        outcome = await self._fetch(view, hit, destination, layers, end)
        if outcome.reason is None or not any(isinstance(e, _OUT_OF_DATE) for e in outcome.errors):
            return outcome
        try:
            view = await self._keeper.refreshed(max(end - time.monotonic(), 0.0))
        except KvorumError:
            return outcome
        return await self._fetch(view, hit, destination, layers, end, outcome)

    async def _fetch(
        self,
        view: View,
        hit: Hit,
        destination: Destination,
        layers: tuple[int, int] | None,
        end: float,
        earlier: FetchOutcome | None = None,
    ) -> FetchOutcome:
        sizes: tuple[int, ...] | None = None
        if self._target.fingerprint.layout != "opaque":
            layout = part_layout(self._target.fingerprint, layers)
            sizes = (layout.frame_bytes,) * layout.layers
        call = GetCall(view, hit, self._part, layers, sizes)
        fetch = Fetch(self._caller, self._fetch_budget, self._settings, self.stats)
        return await fetch.run(hit.blocks, destination, call, end, earlier)

    async def store(self, plan: StorePlan, end: float) -> list[StoredBlock]:
        """Store the full blocks of a prompt from the plan's first on; never raises."""
        blocks = plan.tokens.size // self._target.fingerprint.block_tokens
        indices = range(plan.first_block, blocks)
        try:
            view = await self._keeper.get(max(end - time.monotonic(), 0.0))
        except KvorumError as error:
            return [StoredBlock(at, StoreOutcome.REFUSED, error) for at in indices]
        results = await self._put(view, plan, indices, end)
        stale = [block.index for block in results if isinstance(block.error, _OUT_OF_DATE)]
        if not stale:
            return results
        try:
            view = await self._keeper.refreshed(max(end - time.monotonic(), 0.0))
        except KvorumError:
            return results
        again = {block.index: block for block in await self._put(view, plan, stale, end)}
        return [again.get(block.index, block) for block in results]

    async def _put(
        self, view: View, plan: StorePlan, indices: Sequence[int], end: float
    ) -> list[StoredBlock]:
        call = PutCall(view, self._part, plan.writer, plan.overwrite, plan.first_block)
        return await self._store.run(call, view.chain(plan.tokens), plan.source, indices, end)

    async def delete(self, tokens: Array) -> int:
        """Delete the blocks of a prompt; return how many went.

        Raises:
            KvorumError: no replica of a block could be told.
        """
        view, end = await self._begin()
        return await self._keeping.delete(view, _names(view, tokens), end)

    async def touch(self, hit: Hit, lease_s: float) -> int:
        """Renew the lease of a hit; return how many blocks are there; never raises."""
        blocks = [BlockName(block.index, block.key, block.slot) for block in hit.blocks]
        try:
            view, end = await self._begin()
        except KvorumError:
            return 0
        return await self._keeping.touch(view, blocks, lease_s, end)

    async def pin(self, tokens: Array, *, pinned: bool) -> int:
        """Pin or unpin the blocks of a prompt; return how many are there.

        Raises:
            KvorumError: no replica of a block could be told.
        """
        view, end = await self._begin()
        return await self._keeping.pin(view, _names(view, tokens), end, pinned=pinned)

    async def stat(self, tokens: Array) -> list[BlockStat]:
        """Describe the blocks of a prompt.

        Raises:
            KvorumError: the cluster is not known, and why.
        """
        view, end = await self._begin()
        return await self._keeping.stat(view, _names(view, tokens), end)

    async def topology(self) -> Topology:
        """Return the cluster map, freshly asked for.

        Raises:
            KvorumError: no node answers.
        """
        return to_topology(await self._keeper.ask_map())

    async def status(self) -> list[NodeStatus]:
        """Return the state of every node; works without the namespace.

        Raises:
            KvorumError: no node answers.
        """
        cluster_map, map_digest = await self._keeper.current_map()
        timeout_s = self._settings.call_deadline_s
        return await node_statuses(self._caller, cluster_map, map_digest, timeout_s)

    async def close(self) -> None:
        """End the work in the background and close every channel."""
        await self._keeper.close()
        await self._caller.pool.close()

    async def _begin(self) -> tuple[View, float]:
        """Return the view, and when a call that begins now has to end.

        Raises:
            KvorumError: the cluster is not known, and why.
        """
        deadline_s = self._settings.call_deadline_s
        end = time.monotonic() + deadline_s
        return await self._keeper.get(deadline_s), end


def _names(view: View, tokens: Array) -> list[BlockName]:
    """Return the full blocks of a prompt."""
    chain = view.chain(tokens)
    return [BlockName(at, key, chain.slot(at)) for at, key in enumerate(chain.keys)]
