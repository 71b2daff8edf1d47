"""Room in the arena for parts that are on their way, made by evicting what may go.

Bytes of a store that is not visible yet are *staged*: they are bounded, they count against the
namespace's quota, and they come back when the store breaks off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kvorum.core.errors import (
    ArenaFullError,
    InternalError,
    OverloadedError,
    QuotaError,
    TooLargeError,
)
from kvorum.node.engine.allocator import Allocator, granule_bytes
from kvorum.node.engine.clock import Clock
from kvorum.node.engine.counters import Counters
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.events import Extent, Miss
from kvorum.node.engine.payloads import index_bytes
from kvorum.node.engine.retention import Retention
from kvorum.node.engine.settings import EngineSettings
from kvorum.node.engine.store import Store

_BELOW: Final = 0
_ABOVE: Final = 1
_RECLAIM_STEP: Final = 64


class Room:
    """Places parts in the arena.

    Attributes:
        staged_bytes: arena bytes of stores that are not visible yet.
        index_bytes: memory that describes these.
    """

    def __init__(
        self,
        settings: EngineSettings,
        allocator: Allocator,
        retention: Retention,
        store: Store,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._settings = settings
        self._allocator = allocator
        self._retention = retention
        self._store = store
        self._clock = clock
        self._counters = counters
        self._stamp = 0
        self._evicted = 0
        self.staged_bytes = 0
        self.index_bytes = 0

    def stage(
        self, namespace: Namespace, frame_sizes: tuple[int, ...], frame_crc32c: tuple[int, ...]
    ) -> Extent:
        """Return an extent for one part, after evicting what had to go for it.

        Raises:
            TooLargeError: the part is larger than all that may be staged.
            OverloadedError: too much is staged, or described, or would have to be evicted at once.
            QuotaError: the namespace is at its quota, and nothing of its own may be evicted.
            ArenaFullError: nothing that may be evicted makes room.
        """
        # Every part of a namespace with a fixed shape can share one tuple.
        frame_sizes = namespace.frame_sizes or frame_sizes
        need = granule_bytes(sum(frame_sizes))
        self._check_staged(need)
        self._make_quota(namespace, need)
        self._make_index(index_bytes(len(frame_sizes)))
        offset = self._make_extent(need)
        self.staged_bytes += need
        self.index_bytes += index_bytes(len(frame_sizes))
        namespace.staged_bytes += need
        return Extent(offset, frame_sizes, frame_crc32c)

    def unstage(self, namespace: Namespace, extents: Iterable[Extent]) -> None:
        """Note that staged extents belong to a visible block now."""
        for extent in extents:
            need = granule_bytes(extent.size)
            self.staged_bytes -= need
            self.index_bytes -= index_bytes(len(extent.frame_sizes))
            namespace.staged_bytes -= need

    def give_back(self, namespace: Namespace, extents: Iterable[Extent]) -> None:
        """Take the memory of staged extents back."""
        for extent in extents:
            self.unstage(namespace, (extent,))
            self._store.discard((extent,))

    def _check_staged(self, need: int) -> None:
        limit = self._settings.staged_bytes_max
        if need > limit:
            raise TooLargeError(
                f"a part occupies {need} bytes", field="items.frame_sizes", limit=f"{limit} bytes"
            )
        if self.staged_bytes + need > limit:
            self._counters.refused_overloaded += 1
            raise OverloadedError(
                f"stores under way hold {self.staged_bytes} bytes and {need} more are asked for",
                field="engine.staged_bytes_max",
                limit=f"{limit} bytes",
            )

    def _make_quota(self, namespace: Namespace, need: int) -> None:
        quota = namespace.record.policy.quota_bytes
        if not quota:
            return
        victims = self._victims(namespace)
        while namespace.used_bytes + namespace.staged_bytes + need > quota:
            victim = next(victims, None) if namespace.staged_bytes + need <= quota else None
            if victim is None:
                self._counters.refused_quota += 1
                raise QuotaError(
                    f"the namespace holds {namespace.used_bytes + namespace.staged_bytes} bytes "
                    f"and {need} more are asked for",
                    field="namespace.policy.quota_bytes",
                    limit=f"{quota} bytes",
                )
            self._evict(victim)

    def _make_index(self, need: int) -> None:
        limit = self._settings.index_bytes_max
        victims = self._victims(None)
        while self._store.index_bytes + self.index_bytes + need > limit:
            if self._store.reclaim(_RECLAIM_STEP):
                continue
            victim = next(victims, None)
            if victim is None:
                self._counters.refused_overloaded += 1
                raise OverloadedError(
                    "what describes the blocks has no more room",
                    field="engine.index_bytes_max",
                    limit=f"{limit} bytes",
                )
            self._evict(victim)

    def _make_extent(self, need: int) -> int:
        offset = self._allocator.allocate(need)
        while offset is None and self._store.reclaim(_RECLAIM_STEP):
            offset = self._allocator.allocate(need)
        if offset is not None:
            return offset
        if self._may_fit(need):
            freed = 0
            for victim in self._victims(None):
                freed += victim.payload.arena_bytes
                offset = self._evict_for(victim, need, in_a_row=freed > need)
                if offset is not None:
                    return offset
        self._counters.refused_arena_full += 1
        raise ArenaFullError(
            f"no room for {need} bytes: what is pinned, leased or in use does not go",
            field="engine.capacity_bytes",
            limit=f"{self._settings.capacity_bytes} bytes",
            retry_after_s=1.0,
        )

    def _may_fit(self, need: int) -> bool:
        """Whether evicting all that is not known to stay would free enough.

        Without this look a store that cannot succeed would empty the cache first.
        """
        stays = self._retention.pinned_bytes + self.staged_bytes + self._store.draining_bytes
        return self._settings.capacity_bytes - stays >= need

    def _evict_for(self, victim: Entry, need: int, *, in_a_row: bool) -> int | None:
        """Evict `victim`; return an extent of `need` bytes if there is one now.

        When as many bytes as needed went and lie scattered, `in_a_row` evicts the victim's
        neighbours in the arena as well: going on by age alone could empty the arena before two
        holes meet.
        """
        start = victim.payload.extents[0].offset
        ends = [self._beyond(start, side, victim) for side in (_BELOW, _ABOVE)]
        self._evict(victim)
        offset = self._allocator.allocate(need)
        for side in (_ABOVE, _BELOW) if in_a_row else ():
            while offset is None and (neighbour := self._candidate_at(ends[side])) is not None:
                ends[side] = self._beyond(ends[side], side, neighbour)
                self._evict(neighbour)
                offset = self._allocator.allocate(need)
        return offset

    def _candidate_at(self, offset: int | None) -> Entry | None:
        entry = None if offset is None else self._store.owner(offset)
        return entry if entry is not None and entry.candidate else None

    def _beyond(self, offset: int | None, side: int, entry: Entry) -> int | None:
        """Return the live extent next to `offset` on one side that is not a part of `entry`."""
        while offset is not None and self._store.owner(offset) is entry:
            offset = self._allocator.neighbours(offset)[side]
        return offset

    def _victims(self, namespace: Namespace | None) -> Iterator[Entry]:
        self._retention.end_leases(self._settings.evictions_max)
        return self._retention.victims(namespace)

    def _evict(self, victim: Entry) -> None:
        if self._stamp != self._clock.stamp:
            self._stamp, self._evicted = self._clock.stamp, 0
        if self._evicted >= self._settings.evictions_max:
            self._counters.refused_overloaded += 1
            raise OverloadedError(
                "one request would evict too many blocks at once",
                field="engine.evictions_max",
                limit=f"{self._settings.evictions_max} blocks",
                retry_after_s=0.0,
            )
        if not victim.candidate:
            raise InternalError("the eviction policy named a block that must stay")
        self._evicted += 1
        self._store.drop(victim, Miss.EVICTED)
