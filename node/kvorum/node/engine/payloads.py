"""Groups of parts: what is stored of a block, under which name, and which of two is to stay.

An overwrite gives a block another payload, and the old one stays until its last reader is done.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Final

from kvorum.core.checksum import crc32c
from kvorum.node.engine.allocator import granule_bytes
from kvorum.node.engine.events import BlockView, Extent

# Measured with tracemalloc, CPython 3.11: an entry with its payload, its key, its extent and its
# places in the dictionaries and queues; and what each frame's size and checksum add.
_ENTRY_BYTES: Final = 1360
_FRAME_BYTES: Final = 48


def index_bytes(frames: int) -> int:
    """Return what it costs to describe a part of so many frames, in bytes of memory."""
    return _ENTRY_BYTES + _FRAME_BYTES * frames


class Payload:
    """One complete group of parts and where its bytes lie.

    Attributes:
        group: which of the groups that writers offered.
        clock: hybrid time of the store at its origin.
        overwrite: whether the origin's store was an overwrite.
        stored_ms: when it was stored at its origin, by this node's time.
        extents: one for each part, in order.
        arena_bytes: what the extents occupy, rounded up to the granule.
        index_bytes: what the description occupies.
        readers: read grants that are open.
        attached: whether an entry still has it.
        view: how a lookup sees it.
    """

    __slots__ = (
        "arena_bytes",
        "attached",
        "clock",
        "extents",
        "group",
        "index_bytes",
        "overwrite",
        "readers",
        "stored_ms",
        "view",
    )

    def __init__(
        self,
        group: int,
        clock: int,
        *,
        overwrite: bool,
        stored_ms: int,
        extents: tuple[Extent, ...],
    ) -> None:
        self.group = group
        self.clock = clock
        self.overwrite = overwrite
        self.stored_ms = stored_ms
        self.extents = extents
        self.arena_bytes = sum(granule_bytes(extent.size) for extent in extents)
        self.index_bytes = sum(index_bytes(len(extent.frame_sizes)) for extent in extents)
        self.readers = 0
        self.attached = False
        size = sum(extent.size for extent in extents)
        self.view = BlockView(None, size_bytes=size, parts=len(extents), group=group)

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts together."""
        return self.view.size_bytes

    def digest(self) -> int:
        """Return the CRC-32C over all frame checksums of all parts, each 4 little-endian bytes."""
        return crc32c(b"".join(_packed(extent.frame_crc32c) for extent in self.extents))

    def rank(self) -> tuple[bool, int, int]:
        """Return the place in the order in which replicas of a block agree on one; greatest wins.

        A total order, so that replicas end equal whatever the order of arrival: an overwrite
        beats a plain store; of overwrites the latest wins, of plain stores the first.
        """
        return rank(self.group, self.clock, overwrite=self.overwrite)


def rank(group: int, clock: int, *, overwrite: bool) -> tuple[bool, int, int]:
    """See `Payload.rank`."""
    sign = 1 if overwrite else -1
    return overwrite, sign * clock, sign * group


def group_of(key: bytes, writer: str, extents: Iterable[Extent]) -> int:
    """Return the number that names one writer's parts of a block: 64 bits, never 0."""
    digest = hashlib.sha3_256(key)
    name = writer.encode()
    digest.update(struct.pack("<I", len(name)) + name)
    for extent in extents:
        digest.update(struct.pack("<I", len(extent.frame_sizes)))
        digest.update(_packed(extent.frame_sizes) + _packed(extent.frame_crc32c))
    return int.from_bytes(digest.digest()[:8], "little") or 1


def _packed(numbers: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)
