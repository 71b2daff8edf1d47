"""What lookups, fetches and stores answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kvorum.client.destinations import Destination
from kvorum.client.tensors import Array
from kvorum.client.wireenum import WireEnum
from kvorum.core.errors import KvorumError


class MissReason(WireEnum):
    """Why a block is not there; numbers equal `kvorum.v1.MissReason`."""

    NEVER_STORED = 1
    """No store of it was ever seen, or so long ago that its end is forgotten."""
    EVICTED = 2
    """It made room for others."""
    EXPIRED = 3
    """It outlived its namespace's TTL."""
    INVALIDATED = 4
    """It was deleted."""
    NODE_DOWN = 5
    """No node that should hold it could be reached."""
    CHECKSUM = 6
    """Its bytes were not the bytes that were stored, on the node or on the way."""
    FINGERPRINT = 7
    """It exists under another fingerprint, or lacks the part that was asked for."""
    STALE_EPOCH = 8
    """Its slot moved, or the lease came from an earlier life of the node."""
    TIMEOUT = 9
    """The budget or deadline passed first."""
    DENIED = 10
    """The credentials do not open the namespace."""
    OFFLOADED = 11
    """It lives on an edge node."""


@dataclass(frozen=True, slots=True)
class NodeLease:
    """One node's promise to keep the blocks of a hit.

    Attributes:
        node: name of the node.
        expires_unix_ms: end of the promise by the node's clock.
        duration_ms: milliseconds for which it was granted.
        incarnation: birth number of the node that granted it.
    """

    node: str
    expires_unix_ms: int
    duration_ms: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class LocatedBlock:
    """One block of a hit, and where it is.

    Attributes:
        index: position in the prompt's chain, from 0.
        key: the block key, 64 bytes.
        slot: slot of its segment.
        group: which group of parts was found; a fetch reads this one or nothing.
        size_bytes: bytes of all parts together.
        parts: parts of the block.
        nodes: names of the nodes that said that they hold it, nearest first.
    """

    index: int
    key: bytes
    slot: int
    group: int
    size_bytes: int
    parts: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """The longest prefix of a prompt that the cluster holds; falsy if it holds none.

    A hit can be pickled and used by any process that has a client for the same namespace and
    fingerprint; ranks that share one hit are sure to read parts of the same groups.

    Attributes:
        tokens: tokens of the prefix; a multiple of the block size, 0 for a miss.
        blocks: the blocks of the prefix, in order.
        reason: why the next full block is missing; None if every full block was found.
        lease_until: when the shortest lease ends, on the clock of `time.monotonic()`; None if no
            lease was asked for or granted.
        namespace: name of the namespace.
        fingerprint_digest: SHA3-512 of the fingerprint under which the blocks were found.
        leases: the promises of the nodes.
    """

    tokens: int
    blocks: tuple[LocatedBlock, ...] = ()
    reason: MissReason | None = None
    lease_until: float | None = None
    namespace: str = ""
    fingerprint_digest: bytes = b""
    leases: tuple[NodeLease, ...] = ()

    def __bool__(self) -> bool:
        return self.tokens > 0


@dataclass(slots=True)
class FetchOutcome:
    """What a fetch came to, as the client counts it; its caller gets a `Fetched`.

    Attributes:
        blocks: blocks from the first that arrived intact.
        reason: why the next one did not; None if all arrived.
        bytes_by_zone: payload bytes that came from each zone.
        errors: errors of whole calls.
        received: positions of all blocks that arrived intact.
    """

    blocks: int
    reason: MissReason | None
    bytes_by_zone: Mapping[str, int]
    errors: list[KvorumError] = field(default_factory=list)
    received: frozenset[int] = frozenset()


class Fetched:
    """The contiguous prefix of a hit that arrived intact and in time; falsy if nothing did.

    With `into=` the bytes are in the caller's memory, and what lies between `tokens` and the
    tokens of the hit there is zero.

    Attributes:
        tokens: tokens of the prefix that arrived.
        reason: why it ends before the hit does; None if all of the hit arrived.
        bytes_by_zone: payload bytes that came from each zone, those thrown away included.
    """

    def __init__(
        self,
        tokens: int,
        reason: MissReason | None,
        bytes_by_zone: Mapping[str, int],
        destination: Destination,
        blocks: int,
    ) -> None:
        self.tokens = tokens
        self.reason = reason
        self.bytes_by_zone = dict(bytes_by_zone)
        self._destination = destination
        self._blocks = blocks

    def __bool__(self) -> bool:
        return self.tokens > 0

    def __repr__(self) -> str:
        reason = self.reason.name if self.reason else None
        return f"Fetched(tokens={self.tokens}, blocks={self._blocks}, reason={reason})"

    @cached_property
    def kv(self) -> Array | None:
        """[layers, 2, kv_heads, tokens, head_size]; None for opaque blocks.

        The element type is the fingerprint's, with bfloat16 as uint16 and float8 as uint8. It is
        a view of `into` if that has this shape, of fresh memory without `into`, and a copy if
        `into` is a flat buffer. With `layers=(begin, end)` it has `end - begin` layers.
        """
        return self._destination.kv(self._blocks)

    @cached_property
    def blocks(self) -> list[memoryview]:
        """The bytes of each block, in order: views, or copies where a tensor interleaves them."""
        return self._destination.views(self._blocks)


class StoreOutcome(WireEnum):
    """What became of one block of a store; numbers equal `kvorum.v1.PutOutcome`."""

    STORED = 1
    """Stored and visible."""
    ALREADY_STORED = 2
    """A group was there already and stays; a success."""
    STAGED = 3
    """Held until the other ranks' parts arrive, for at most 30 s."""
    REFUSED = 4
    """Not stored; the block's error says why."""


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """The result of one block of a store.

    Attributes:
        index: position in the prompt's chain, from 0.
        outcome: what became of it.
        error: why it was refused; None otherwise.
        group: which group is stored now; 0 if none, or if parts are missing.
        zones: zones that are known to hold it.
        replicas: zones that are to hold it.
    """

    index: int
    outcome: StoreOutcome
    error: KvorumError | None = None
    group: int = 0
    zones: tuple[str, ...] = ()
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class StoreResult:
    """The result of a store, block by block; truthy if nothing was refused.

    Attributes:
        blocks: one result for each full block from `first_block` on.
    """

    blocks: tuple[StoredBlock, ...] = field(default=())

    def __bool__(self) -> bool:
        return not self.refused

    def _count(self, outcome: StoreOutcome) -> int:
        return sum(block.outcome is outcome for block in self.blocks)

    @property
    def stored(self) -> int:
        """Blocks that this store made visible."""
        return self._count(StoreOutcome.STORED)

    @property
    def already_stored(self) -> int:
        """Blocks that were there already."""
        return self._count(StoreOutcome.ALREADY_STORED)

    @property
    def staged(self) -> int:
        """Blocks that wait for the other ranks' parts."""
        return self._count(StoreOutcome.STAGED)

    @property
    def refused(self) -> int:
        """Blocks that were not stored."""
        return self._count(StoreOutcome.REFUSED)

    @property
    def errors(self) -> list[KvorumError]:
        """Why blocks were refused; errors that say the same are listed once."""
        distinct: dict[tuple[type[KvorumError], str], KvorumError] = {}
        for block in self.blocks:
            if block.error is not None:
                distinct.setdefault((type(block.error), str(block.error)), block.error)
        return list(distinct.values())

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones that acknowledged, sorted."""
        return tuple(sorted({zone for block in self.blocks for zone in block.zones}))


@dataclass(frozen=True, slots=True)
class BlockStat:
    """What one block is, as its nearest replica says.

    Attributes:
        index: position in the prompt's chain, from 0.
        key: the block key, 64 bytes.
        reason: why it is missing; None if at least one replica holds it.
        size_bytes: bytes of all parts together.
        parts: parts of the block.
        group: which group is stored.
        age_s: seconds since it was stored.
        idle_s: seconds since it was last used.
        lease_s: seconds for which a lease holds it; 0 if none does.
        pinned: whether it, or a block that continues it, is pinned.
        digest: CRC-32C over the frame checksums of all parts.
        zones: zones whose replica holds it, nearest first.
    """

    index: int
    key: bytes
    reason: MissReason | None
    size_bytes: int = 0
    parts: int = 0
    group: int = 0
    age_s: float = 0.0
    idle_s: float = 0.0
    lease_s: float = 0.0
    pinned: bool = False
    digest: int = 0
    zones: tuple[str, ...] = ()
