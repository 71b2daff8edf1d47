"""Arena offsets: TLSF, the two-level segregated fit of Masmano, Ripoll, Crespo and Real (2004).

"TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004. Free extents are kept in
lists by size class; two levels of bitmaps find a list that surely fits in constant time, and a
freed extent merges with its free neighbours at once, so no fragment outlives its cause. Only
numbers live here: the bytes are the arena's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvorum.core.errors import InternalError, InvalidArgumentError

GRANULE_BYTES: Final = 4096
"""Unit of allocation: a page, so that extents may be mapped, registered and advised alone."""

_SPLIT_BITS: Final = 5
_SPLITS: Final = 1 << _SPLIT_BITS
# How many extents of a request's own class to try when all greater classes are empty. Without it
# an extent that fits exactly could stay unseen, because the class also holds smaller ones.
_OWN_CLASS_TRIES: Final = 8


def granule_bytes(size_bytes: int) -> int:
    """Return the bytes of the arena that `size_bytes` occupy."""
    return -(-size_bytes // GRANULE_BYTES) * GRANULE_BYTES


class _Run:
    """A run of granules, free or live, linked to its neighbours in the arena and in its list."""

    __slots__ = ("above", "below", "free", "newer", "older", "size", "start")

    def __init__(self, start: int, size: int, below: _Run | None, above: _Run | None) -> None:
        self.start = start
        self.size = size
        self.below = below
        self.above = above
        self.free = False
        self.newer: _Run | None = None
        self.older: _Run | None = None


def _class_holding(size: int) -> int:
    """Return the class in whose list a free run of `size` granules lies."""
    if size < _SPLITS:
        return size
    level = size.bit_length() - 1 - _SPLIT_BITS
    return (level + 1) * _SPLITS + (size >> level) - _SPLITS


def _class_fitting(size: int) -> int:
    """Return the first class all of whose runs have at least `size` granules."""
    if size >= _SPLITS:
        size += (1 << (size.bit_length() - 1 - _SPLIT_BITS)) - 1
    return _class_holding(size)


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


class Allocator:
    """Hands out extents of [0, capacity) and takes them back, each in constant time.

    Raises:
        InvalidArgumentError: the capacity is not a positive multiple of the granule.
    """

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes <= 0 or capacity_bytes % GRANULE_BYTES:
            raise InvalidArgumentError(
                f"the arena has {capacity_bytes} bytes",
                field="capacity_bytes",
                limit=f"a positive multiple of {GRANULE_BYTES} bytes",
            )
        self.capacity_bytes = capacity_bytes
        granules = capacity_bytes // GRANULE_BYTES
        levels = _class_fitting(granules) // _SPLITS + 1
        self._heads: list[_Run | None] = [None] * (levels * _SPLITS)
        self._levels = 0
        self._splits = [0] * levels
        self._live: dict[int, _Run] = {}
        self._used = 0
        self._lowest = _Run(0, granules, None, None)
        self._put(self._lowest)

    @property
    def used_bytes(self) -> int:
        """Bytes handed out, rounded up to the granule."""
        return self._used * GRANULE_BYTES

    @property
    def free_bytes(self) -> int:
        """Bytes not handed out."""
        return self.capacity_bytes - self.used_bytes

    @property
    def largest_free_bytes(self) -> int:
        """Bytes of the longest free extent; walks the list of the greatest class."""
        if not self._levels:
            return 0
        level = self._levels.bit_length() - 1
        run = self._heads[level * _SPLITS + self._splits[level].bit_length() - 1]
        largest = 0
        while run is not None:
            largest = max(largest, run.size)
            run = run.older
        return largest * GRANULE_BYTES

    def allocate(self, size_bytes: int) -> int | None:
        """Return the offset of a free extent of at least `size_bytes`, now taken; None if none.

        Raises:
            InternalError: the size is not positive.
        """
        if size_bytes <= 0:
            raise InternalError(f"an extent of {size_bytes} bytes was asked for")
        size = -(-size_bytes // GRANULE_BYTES)
        run = self._find(size)
        if run is None:
            return None
        self._take(run)
        if run.size > size:
            rest = _Run(run.start + size, run.size - size, run, run.above)
            if run.above is not None:
                run.above.below = rest
            run.above = rest
            run.size = size
            self._put(rest)
        self._used += size
        offset = run.start * GRANULE_BYTES
        self._live[offset] = run
        return offset

    def free(self, offset: int) -> int:
        """Take the extent at `offset` back and return its bytes.

        Raises:
            InternalError: no extent was handed out there, or it came back already.
        """
        run = self._live.pop(offset, None)
        if run is None:
            raise InternalError(f"no extent is handed out at {offset}")
        size = run.size
        self._used -= size
        above = run.above
        if above is not None and above.free:
            self._take(above)
            self._absorb(run, above)
        below = run.below
        if below is not None and below.free:
            self._take(below)
            self._absorb(below, run)
            run = below
        self._put(run)
        return size * GRANULE_BYTES

    def neighbours(self, offset: int) -> tuple[int | None, int | None]:
        """Return the offsets of the live extents next below and next above a live extent.

        Free space between does not count; None where the arena ends.
        """
        below, above = self._live[offset].below, self._live[offset].above
        # Free runs merge, so there is at most one on either side.
        if below is not None and below.free:
            below = below.below
        if above is not None and above.free:
            above = above.above
        return (
            None if below is None else below.start * GRANULE_BYTES,
            None if above is None else above.start * GRANULE_BYTES,
        )

    def extents(self) -> Iterator[tuple[int, int, bool]]:
        """Yield (offset, bytes, whether it is free) of every extent, in order of offset."""
        run: _Run | None = self._lowest
        while run is not None:
            yield run.start * GRANULE_BYTES, run.size * GRANULE_BYTES, run.free
            run = run.above

    def _find(self, size: int) -> _Run | None:
        level, split = divmod(_class_fitting(size), _SPLITS)
        if level < len(self._splits):
            splits = self._splits[level] & (-1 << split)
            if not splits:
                levels = self._levels & (-1 << (level + 1))
                level = _lowest_bit(levels) if levels else 0
                splits = self._splits[level] if levels else 0
            if splits:
                return self._heads[level * _SPLITS + _lowest_bit(splits)]
        return self._find_in_own_class(size)

    def _find_in_own_class(self, size: int) -> _Run | None:
        own = _class_holding(size)
        run = self._heads[own] if own < len(self._heads) else None
        for _ in range(_OWN_CLASS_TRIES):
            if run is None or run.size >= size:
                break
            run = run.older
        return run if run is not None and run.size >= size else None

    def _put(self, run: _Run) -> None:
        index = _class_holding(run.size)
        head = self._heads[index]
        run.free = True
        run.newer, run.older = None, head
        if head is not None:
            head.newer = run
        self._heads[index] = run
        level, split = divmod(index, _SPLITS)
        self._levels |= 1 << level
        self._splits[level] |= 1 << split

    def _take(self, run: _Run) -> None:
        run.free = False
        if run.older is not None:
            run.older.newer = run.newer
        if run.newer is not None:
            run.newer.older = run.older
        else:
            index = _class_holding(run.size)
            self._heads[index] = run.older
            if run.older is None:
                level, split = divmod(index, _SPLITS)
                self._splits[level] &= ~(1 << split)
                if not self._splits[level]:
                    self._levels &= ~(1 << level)
        run.newer = run.older = None

    @staticmethod
    def _absorb(run: _Run, above: _Run) -> None:
        run.size += above.size
        run.above = above.above
        if run.above is not None:
            run.above.below = run
