"""What the engine knows of one block and of one namespace.

An `Entry` is a block's place: its key, its links in the segment's tree, its use and what holds
it. What is stored there is its `Payload`.

    segment's first block ── child ── child        entry.above, entry.children
                               └───── child        at most `blocks_per_segment` deep
"""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.core.keys import blocks_per_segment
from kvorum.core.layout import BlockLayout
from kvorum.node.engine.events import NamespaceRecord
from kvorum.node.engine.payloads import Payload


class Entry:
    """A block that is visible.

    Attributes:
        namespace: where it belongs.
        key: its name, 64 bytes.
        parent: the key before in the chain, 64 bytes.
        index: its position in the chain.
        slot: its segment's slot.
        payload: what is stored.
        above: the block of the same segment that it continues, if that is present.
        children: the blocks of the same segment that continue it.
        used: stamp of the last event that used it or a block that continues it.
        used_ms: time of that event.
        uses: how many events used it.
        leased_until_ms: end of the longest lease.
        pinned: whether it was pinned itself.
        pins: pinned blocks among itself and its descendants.
        holds: reads of it, and stores of its children or its replacement, that are under way.
        candidate: whether the eviction policy holds it.
        live: false once it was dropped.
    """

    __slots__ = (
        "above",
        "candidate",
        "children",
        "holds",
        "index",
        "key",
        "leased_until_ms",
        "live",
        "namespace",
        "parent",
        "payload",
        "pinned",
        "pins",
        "slot",
        "used",
        "used_ms",
        "uses",
    )

    def __init__(
        self,
        namespace: Namespace,
        key: bytes,
        parent: bytes,
        index: int,
        slot: int,
        payload: Payload,
    ) -> None:
        self.namespace = namespace
        self.key = key
        self.parent = parent
        self.index = index
        self.slot = slot
        self.payload = payload
        self.above: Entry | None = None
        self.children: set[Entry] = set()
        self.used = 0
        self.used_ms = 0
        self.uses = 0
        self.leased_until_ms = 0
        self.pinned = False
        self.pins = 0
        self.holds = 0
        self.candidate = False
        self.live = False

    @property
    def depth(self) -> int:
        """Position in the segment, from 0."""
        return self.index % self.namespace.blocks_per_segment

    def line(self) -> Iterator[Entry]:
        """Yield the entry and those that it continues, up to the first that is present."""
        entry: Entry | None = self
        while entry is not None:
            yield entry
            entry = entry.above

    @property
    def top(self) -> Entry:
        """The first of those that it continues; the segment's first block, or a gap is before."""
        top = self
        while top.above is not None:
            top = top.above
        return top

    @property
    def reachable(self) -> bool:
        """Whether all blocks before it in the segment are present; lookups find no other."""
        return self.top.depth == 0

    def expires_ms(self) -> int | None:
        """Return when the namespace's policy ends the block; None for never."""
        if not self.namespace.mortal:
            return None
        policy = self.namespace.record.policy
        ends = []
        if policy.ttl_ms:
            ends.append(self.payload.stored_ms + policy.ttl_ms)
        if policy.idle_ttl_ms:
            ends.append(self.used_ms + policy.idle_ttl_ms)
        return min(ends, default=None)


class Namespace:
    """A namespace that exists, and its blocks.

    Attributes:
        record: its definition at the latest revision; `define` changes it.
        mortal: whether its policy ends blocks at some time.
        tag: short name that no other namespace of this engine ever had; 8 bytes.
        digest: name of its fingerprint, 64 bytes.
        blocks_per_segment: blocks that share one slot.
        parts: parts that a block must have.
        frame_sizes: bytes of each frame that a part must have; None if any may come.
        entries: its visible blocks by key.
        orphans: entries that wait for the block before them, by that block's key.
        used_bytes: arena bytes of its visible blocks.
        staged_bytes: arena bytes of its stores that are not visible yet.
        lookup_hits: blocks that lookups asked for and that were present.
        lookup_misses: blocks that lookups asked for and that were not.
        gone: true once it was deleted.
    """

    __slots__ = (
        "blocks_per_segment",
        "digest",
        "entries",
        "frame_sizes",
        "gone",
        "lookup_hits",
        "lookup_misses",
        "mortal",
        "orphans",
        "parts",
        "record",
        "staged_bytes",
        "tag",
        "used_bytes",
    )

    def __init__(self, record: NamespaceRecord, serial: int) -> None:
        self.define(record)
        self.tag = serial.to_bytes(8, "little")
        self.digest = record.fingerprint.digest()
        self.blocks_per_segment = blocks_per_segment(record.fingerprint.block_tokens)
        self.parts = record.fingerprint.parts
        self.frame_sizes = _expected_frames(record)
        self.entries: dict[bytes, Entry] = {}
        self.orphans: dict[bytes, set[Entry]] = {}
        self.used_bytes = 0
        self.staged_bytes = 0
        self.lookup_hits = 0
        self.lookup_misses = 0
        self.gone = False

    def define(self, record: NamespaceRecord) -> None:
        """Take the definition of another revision; its fingerprint is the same."""
        self.record = record
        self.mortal = record.policy.ttl_ms > 0 or record.policy.idle_ttl_ms > 0

    def first_in_segment(self, index: int) -> bool:
        """Whether the block at `index` of a chain begins a segment."""
        return index % self.blocks_per_segment == 0


def _expected_frames(record: NamespaceRecord) -> tuple[int, ...] | None:
    try:
        layout = BlockLayout.of(record.fingerprint)
    except TooLargeError:
        return ()  # no part can have this shape, so none may come
    except InvalidArgumentError:
        return None  # opaque, or split over context ranks: any frames may come
    return (layout.frame_bytes,) * layout.layers
