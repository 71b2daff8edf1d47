"""Arena: the one run of shared memory that holds every block; its size is the node's capacity.

It is mapped and touched once, at start, so that no request ever waits for the kernel to find a
page, and a machine with too little memory refuses the node rather than killing it under load.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

from kvorum.core.errors import InvalidArgumentError

_FLAGS: Final = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
_PAGE: Final = mmap.PAGESIZE


class Arena:
    """`capacity` bytes of shared memory, resident from the start.

    Args:
        capacity: bytes, rounded up to whole pages by the kernel.

    Raises:
        InvalidArgumentError: the machine has less memory than that.
    """

    def __init__(self, capacity: int) -> None:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if not 0 < capacity <= physical:
            raise InvalidArgumentError(
                f"an arena of {capacity} bytes does not fit this machine",
                field="memory",
                limit=f"1 to {physical} bytes",
            )
        self.capacity = capacity
        self._bytes: memoryview | None = memoryview(_map(capacity))

    def view(self, offset: int, size: int) -> memoryview:
        """Return `size` writable bytes from `offset` on, without a copy.

        Raises:
            ValueError: the run is not inside the arena, or the arena is closed.
        """
        if self._bytes is None:
            raise ValueError("the arena is closed")
        if offset < 0 or size < 0 or offset + size > self.capacity:
            raise ValueError(f"{size} bytes at {offset} are not inside {self.capacity} bytes")
        return self._bytes[offset : offset + size]

    def close(self) -> None:
        """Give the memory back, as soon as the last view is gone; `view` fails from now on."""
        self._bytes = None


def _map(capacity: int) -> mmap.mmap:
    try:
        mapping = _map_shared(capacity)
        if not hasattr(mmap, "MAP_POPULATE"):
            for offset in range(0, capacity, _PAGE):
                mapping[offset] = 0
    except OSError as error:
        raise InvalidArgumentError(
            f"an arena of {capacity} bytes cannot be had: {error}", field="memory"
        ) from error
    return mapping


def _map_shared(capacity: int) -> mmap.mmap:
    """Map a memory file where the kernel has them, so that another process can map it too."""
    if not hasattr(os, "memfd_create"):
        return mmap.mmap(-1, capacity, flags=_FLAGS | mmap.MAP_ANONYMOUS)
    fd = os.memfd_create("kvorum-arena", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, capacity)
        return mmap.mmap(fd, capacity, flags=_FLAGS)
    finally:
        os.close(fd)  # the mapping holds a descriptor of its own
