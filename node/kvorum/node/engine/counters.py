"""What the engine counts, and the snapshot of its state that operators see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvorum.node.engine.events import Miss, NamespaceId


@dataclass(slots=True)
class Counters:
    """Counts since the engine's birth.

    Attributes:
        lookup_hits: owned blocks that lookups asked for and that were present.
        lookup_misses: owned blocks that lookups asked for and that were not.
        read_hits: parts that reads asked for and got, counted when the read ends.
        read_misses: parts that reads asked for and did not get.
        misses: misses of lookups and of reads, by reason.
        stored_blocks: blocks that became visible by a local store that found none.
        overwritten_blocks: blocks that got another group, by a local store or a peer's.
        already_stored: parts whose block was there already.
        staged_parts: parts that came before the last of their group.
        staged_restarts: groups begun anew because a part came again with other bytes.
        staged_expired: groups whose other parts did not come in time.
        aborted_writes: parts, and blocks of peers, that were begun and not kept.
        corrupt_writes: those of them whose bytes failed their checksum.
        replica_blocks: blocks that became visible by a peer's store.
        replica_kept: blocks offered by a peer where ours stayed, or a tombstone covered them.
        replica_refused: blocks offered by a peer that could not be kept.
        evicted_blocks: blocks that made room.
        evicted_bytes: arena bytes of these.
        expired_blocks: blocks that outlived their namespace's policy.
        deleted_blocks: blocks that were deleted, here or by a peer.
        corrupt_blocks: blocks that went because bytes failed their checksum, descendants included.
        unnamed_blocks: blocks that went with their namespace.
        refused_arena_full: parts refused because nothing that may go makes room.
        refused_quota: parts refused because the namespace is at its quota.
        refused_overloaded: requests refused because another bound was reached.
    """

    lookup_hits: int = 0
    lookup_misses: int = 0
    read_hits: int = 0
    read_misses: int = 0
    misses: Counter[Miss] = field(default_factory=Counter)
    stored_blocks: int = 0
    overwritten_blocks: int = 0
    already_stored: int = 0
    staged_parts: int = 0
    staged_restarts: int = 0
    staged_expired: int = 0
    aborted_writes: int = 0
    corrupt_writes: int = 0
    replica_blocks: int = 0
    replica_kept: int = 0
    replica_refused: int = 0
    evicted_blocks: int = 0
    evicted_bytes: int = 0
    expired_blocks: int = 0
    deleted_blocks: int = 0
    corrupt_blocks: int = 0
    unnamed_blocks: int = 0
    refused_arena_full: int = 0
    refused_quota: int = 0
    refused_overloaded: int = 0

    def by_name(self) -> dict[str, int]:
        """Return every plain counter by its name."""
        return {
            name: value for name in self.__slots__ if isinstance(value := getattr(self, name), int)
        }


@dataclass(frozen=True, slots=True)
class NamespaceUsage:
    """What one namespace holds on this node; see `Namespace`."""

    id: NamespaceId
    blocks: int
    used_bytes: int
    staged_bytes: int
    lookup_hits: int
    lookup_misses: int


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine's state at one moment.

    Attributes:
        arena_bytes: bytes of the arena.
        used_bytes: bytes of it that are handed out, rounded up to the granule.
        largest_free_bytes: bytes of its longest free extent.
        pinned_bytes: arena bytes of blocks under pins.
        staged_bytes: arena bytes of stores that are not visible yet.
        draining_bytes: arena bytes of replaced or dropped blocks that readers still read.
        index_bytes: memory that describes blocks and stores, as `payloads.index_bytes` counts it.
        blocks: blocks that are visible.
        candidates: blocks that may be evicted at present.
        open_reads: read grants that are open.
        open_writes: write and replica grants that are open.
        history_blocks: dropped blocks whose reason is remembered.
        tombstones: deletes that are remembered.
        tombstones_overflowed: deletes that were forgotten early because there were too many.
        lookup_hits: see `Counters`.
        lookup_misses: see `Counters`.
        misses: misses of lookups and of reads, by reason.
        counters: everything else that is counted, by name.
        namespaces: what each namespace holds.
    """

    arena_bytes: int
    used_bytes: int
    largest_free_bytes: int
    pinned_bytes: int
    staged_bytes: int
    draining_bytes: int
    index_bytes: int
    blocks: int
    candidates: int
    open_reads: int
    open_writes: int
    history_blocks: int
    tombstones: int
    tombstones_overflowed: int
    lookup_hits: int
    lookup_misses: int
    misses: Mapping[Miss, int]
    counters: Mapping[str, int]
    namespaces: tuple[NamespaceUsage, ...]
