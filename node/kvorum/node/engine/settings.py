"""Settings of the engine: every bound of what a node keeps, and how the bounds relate."""

from __future__ import annotations

from dataclasses import dataclass, fields

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.engine.allocator import GRANULE_BYTES
from kvorum.node.engine.eviction import POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Bounds of one engine. Settings that are 0 are derived from the capacity.

    Attributes:
        capacity_bytes: bytes of the arena; a multiple of 4,096.
        eviction: name of the eviction policy; a key of `eviction.POLICIES`.
        staged_bytes_max: bytes of stores that are not visible yet; 0 for half of the arena.
        staged_ttl_ms: how long a part waits for the other parts of its group.
        pinned_bytes_max: bytes under pins; 0 for half of the arena.
        index_bytes_max: memory for what describes blocks, as `payloads.index_bytes` counts it;
            0 for a sixteenth of the arena or 48 MiB, whichever is more.
        open_reads_max: read grants at one time.
        history_blocks_max: dropped blocks whose miss reason is remembered.
        tombstones_max: deletes that are remembered against replicas that arrive late.
        tombstone_ttl_ms: how long they are remembered at most.
        clock_ahead_ms_max: how far a peer's clock may be ahead.
        evictions_max: blocks that one event may evict, so that no event takes long.
        tick_items_max: blocks, stores, leases and tombstones that one tick may end, of each kind.
    """

    capacity_bytes: int
    eviction: str = "prefix-lru"
    staged_bytes_max: int = 0
    staged_ttl_ms: int = 30_000
    pinned_bytes_max: int = 0
    index_bytes_max: int = 0
    open_reads_max: int = 131_072
    history_blocks_max: int = 65_536
    tombstones_max: int = 65_536
    tombstone_ttl_ms: int = 86_400_000
    clock_ahead_ms_max: int = 60_000
    evictions_max: int = 8_192
    tick_items_max: int = 1_024

    def __post_init__(self) -> None:
        self.validate()
        # Pins and stores under way together never claim more than there is.
        half = max(self.capacity_bytes // 2, GRANULE_BYTES)
        self._derive("staged_bytes_max", half)
        self._derive("pinned_bytes_max", half)
        self._derive("index_bytes_max", max(self.capacity_bytes // 16, 48 << 20))

    def validate(self) -> None:
        """Check every setting and their relations.

        Raises:
            InvalidArgumentError: names the setting and its limit.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (type(value) is not int or value < 0):
                raise _invalid(field.name, value, "a whole number from 0")
        if self.capacity_bytes == 0 or self.capacity_bytes % GRANULE_BYTES:
            raise _invalid(
                "capacity_bytes", self.capacity_bytes, f"a positive multiple of {GRANULE_BYTES}"
            )
        if self.eviction not in POLICIES:
            raise _invalid("eviction", self.eviction, "one of " + ", ".join(sorted(POLICIES)))
        for name in ("staged_bytes_max", "pinned_bytes_max"):
            if getattr(self, name) > self.capacity_bytes:
                raise _invalid(name, getattr(self, name), "capacity_bytes")
        for name in ("staged_ttl_ms", "open_reads_max", "evictions_max", "tick_items_max"):
            if getattr(self, name) == 0:
                raise _invalid(name, 0, "a whole number from 1")

    def _derive(self, name: str, value: int) -> None:
        if getattr(self, name) == 0:
            object.__setattr__(self, name, value)


def _invalid(name: str, value: object, limit: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name} is {value!r}", field=f"engine.{name}", limit=limit)
