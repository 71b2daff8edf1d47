"""What the engine can be told, and what it answers and asks for.

The engine decides and never acts: `Engine.handle(event, now_ms)` returns the reply to the event
and the effects that its driver must carry out. Bytes are the driver's: the engine hands out
extents of the arena (`ReadGrant`, `WriteGrant`), the driver copies and checks, and reports back.
Time is `now_ms`, milliseconds since the Unix epoch, never decreasing.

An event that is refused as a whole, because there is no such namespace for example, and whose
reply has no place for an error, makes `handle` raise it. A grant that is not open is a defect of
the driver and raises `InternalError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from kvorum.core.errors import KvorumError  # noqa: F401  # named in the string arguments below
from kvorum.node.engine.effects import Effect, Replicate, ReplicateTombstone
from kvorum.node.engine.values import (
    BlockInfo,
    BlockView,
    Condition,
    Extent,
    Miss,
    NamespaceId,
    NamespaceRecord,
    Outcome,
    Policy,
)

__all__ = [
    "AbortReplica",
    "AbortWrite",
    "ApplyNamespace",
    "ApplyTombstone",
    "BeginRead",
    "BeginReplica",
    "BeginWrite",
    "BlockInfo",
    "BlockView",
    "CommitReplica",
    "CommitWrite",
    "Condition",
    "Corrupt",
    "Delete",
    "Effect",
    "EndRead",
    "Event",
    "Extent",
    "Lookup",
    "LookupReply",
    "Miss",
    "NamespaceId",
    "NamespaceRecord",
    "Outcome",
    "Pin",
    "Policy",
    "ReadGrant",
    "ReadItem",
    "ReplicaBlock",
    "ReplicaGrant",
    "Replicate",
    "ReplicateTombstone",
    "Snapshot",
    "Stat",
    "Tick",
    "Touch",
    "WriteGrant",
    "WriteItem",
    "WriteReply",
]

ReplyT_co = TypeVar("ReplyT_co", covariant=True)


class Event(Generic[ReplyT_co]):
    """Something that happened; `ReplyT_co` is what the engine answers."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ApplyNamespace(Event[bool]):
    """A namespace was made, changed or deleted here or elsewhere. Reply: whether it was news.

    The higher revision wins; at equal revisions a tombstone wins, then the greater canonical
    bytes, so that all members end equal whatever the order of arrival.
    """

    record: NamespaceRecord


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class LookupReply:
    """Longest prefix present, and every block's state.

    `present` counts blocks from the first without a gap. `lease_until_ms` is None if no lease was
    asked for or no block is present.
    """

    present: int
    blocks: tuple[BlockView, ...]
    lease_until_ms: int | None


@dataclass(frozen=True, slots=True)
class Lookup(Event[LookupReply]):
    """Which of a prompt's blocks are here? `owned[i]` says whether block i's slot is this shard's.

    Blocks that are not owned are neither hits nor misses and do not end the walk of a later
    segment; their view is STALE_EPOCH. A block behind the first miss of its segment is a miss for
    the same reason. Present blocks count as used and are leased for `lease_ms`.
    """

    namespace: NamespaceId
    fingerprint_digest: bytes
    keys: tuple[bytes, ...]
    owned: tuple[bool, ...]
    lease_ms: int


@dataclass(frozen=True, slots=True)
class ReadItem:
    """One part of one block; `group` 0 means any."""

    key: bytes
    part: int
    group: int = 0


@dataclass(frozen=True, slots=True)
class ReadGrant:
    """Leave to read an extent until `EndRead`; its bytes stay even if the block is dropped."""

    id: int
    extent: Extent
    group: int


@dataclass(frozen=True, slots=True)
class BeginRead(Event["tuple[ReadGrant | Miss, ...]"]):
    """A reader wants parts of blocks. Counts as use. One answer for each item, in order."""

    namespace: NamespaceId
    fingerprint_digest: bytes
    items: tuple[ReadItem, ...]


@dataclass(frozen=True, slots=True)
class EndRead(Event[None]):
    """A reader is done, or gone."""

    grant_id: int


@dataclass(frozen=True, slots=True)
class Corrupt(Event[None]):
    """The bytes under a read grant fail their checksum: the block goes, its descendants too."""

    grant_id: int


# ---------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True)
class WriteItem:
    """One part of one block, announced.

    `parent` is the key before in the chain, `index` the block's position in it.
    """

    key: bytes
    parent: bytes
    index: int
    slot: int
    part: int
    parts: int
    frame_sizes: tuple[int, ...]
    frame_crc32c: tuple[int, ...]
    if_group: int = 0


@dataclass(frozen=True, slots=True)
class WriteGrant:
    """Leave to write an extent until `CommitWrite` or `AbortWrite`."""

    id: int
    extent: Extent


@dataclass(frozen=True, slots=True)
class WriteReply:
    """The end of a write; `group` is what is stored now, 0 while parts are missing."""

    outcome: Outcome
    group: int
    replicas: int


@dataclass(frozen=True, slots=True)
class BeginWrite(Event["tuple[WriteGrant | WriteReply | KvorumError, ...]"]):
    """A writer wants to store parts. One answer for each item, in order.

    A grant for what may be written; a `WriteReply` ALREADY_STORED for what need not be; an error
    for what may not be.
    """

    namespace: NamespaceId
    fingerprint_digest: bytes
    writer: str
    condition: Condition
    items: tuple[WriteItem, ...]


@dataclass(frozen=True, slots=True)
class CommitWrite(Event["WriteReply | KvorumError"]):
    """All bytes of a grant arrived and match their checksums."""

    grant_id: int


@dataclass(frozen=True, slots=True)
class AbortWrite(Event[None]):
    """A write broke off, or its bytes fail their checksum; its memory comes back at once."""

    grant_id: int
    is_corrupt: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaBlock:
    """A whole block as a peer sends it."""

    namespace: NamespaceId
    fingerprint_digest: bytes
    key: bytes
    parent: bytes
    index: int
    slot: int
    group: int
    clock: int
    stored_ms: int
    overwrite: bool
    frame_sizes: tuple[tuple[int, ...], ...]
    frame_crc32c: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ReplicaGrant:
    """Leave to write all parts of a peer's block until `CommitReplica` or `AbortReplica`."""

    id: int
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class BeginReplica(Event["ReplicaGrant | Outcome | KvorumError"]):
    """A peer offers a block; ALREADY_STORED if ours stays or a later tombstone covers it."""

    block: ReplicaBlock


@dataclass(frozen=True, slots=True)
class CommitReplica(Event["Outcome | KvorumError"]):
    """All bytes of a peer's block arrived and match."""

    grant_id: int


@dataclass(frozen=True, slots=True)
class AbortReplica(Event[None]):
    """The peer broke off, or its bytes fail their checksum."""

    grant_id: int
    is_corrupt: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole block as `Engine.snapshot` gives it to the replicator, held until `EndRead`."""

    grant_id: int
    block: ReplicaBlock
    extents: tuple[Extent, ...]


# ---------------------------------------------------------------- keeping and dropping


@dataclass(frozen=True, slots=True)
class Delete(Event["tuple[int, ...]"]):
    """Delete blocks with their descendants. Reply: blocks that went, for each key."""

    namespace: NamespaceId
    fingerprint_digest: bytes
    keys: tuple[bytes, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ApplyTombstone(Event[None]):
    """A peer deleted a block, at `clock` of its hybrid logical clock."""

    namespace: NamespaceId
    key: bytes
    clock: int


@dataclass(frozen=True, slots=True)
class Touch(Event["tuple[tuple[Miss | None, ...], int | None]"]):
    """Blocks were used. Reply: misses, and until when the others are leased."""

    namespace: NamespaceId
    fingerprint_digest: bytes
    keys: tuple[bytes, ...]
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Pin(Event["tuple[Miss | None, ...] | KvorumError"]):
    """Keep blocks from eviction, or with `pinned` False no longer.

    An error if the pins would pass the limit; then no block is pinned.
    """

    namespace: NamespaceId
    fingerprint_digest: bytes
    keys: tuple[bytes, ...]
    pinned: bool


@dataclass(frozen=True, slots=True)
class Stat(Event["tuple[BlockInfo, ...]"]):
    """Describe blocks; no use is counted."""

    namespace: NamespaceId
    fingerprint_digest: bytes
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Tick(Event[None]):
    """Time passed: expire blocks and abandoned writes, a bounded number a call."""
