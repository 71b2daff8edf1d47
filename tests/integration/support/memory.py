"""What a node's memory holds: how much of it is resident, and a bit flipped in its arena."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

_SCAN_BYTES: Final = 16 << 20


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and all that it started, shared pages included."""
    process = psutil.Process(pid)
    return sum(int(one.memory_info().rss) for one in (process, *process.children(recursive=True)))


def flip_in_arena(pid: int, marker: bytes) -> int:
    """Flip one bit of every `marker` in the shared memory of a process; return how many.

    A failing memory chip would do the same. The process keeps running meanwhile.
    """
    flipped = 0
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        for start, end in _shared_ranges(pid):
            for address in _find(memory.fileno(), start, end, marker):
                memory.seek(address)
                first = memory.read(1)
                memory.seek(address)
                memory.write(bytes((first[0] ^ 1,)))
                flipped += 1
    return flipped


def _shared_ranges(pid: int) -> list[tuple[int, int]]:
    """Return the writable shared mappings: the arena is one."""
    ranges = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, mode, *_ = line.split()
        if mode.startswith("rw") and mode.endswith("s"):
            start, end = span.split("-")
            ranges.append((int(start, 16), int(end, 16)))
    return ranges


def _find(memory: int, start: int, end: int, marker: bytes) -> list[int]:
    found = []
    overlap = len(marker) - 1
    for begin in range(start, end, _SCAN_BYTES):
        window = os.pread(memory, min(_SCAN_BYTES + overlap, end - begin), begin)
        at = window.find(marker)
        while at >= 0:
            found.append(begin + at)
            at = window.find(marker, at + 1)
    return found
