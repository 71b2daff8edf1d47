"""What a node of a local cluster watches beside its work: its parent, and the size of its log."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Final

POLL_S: Final = 0.5
"""Seconds between two looks; a node outlives its parent by no more than this and its drain."""


async def parent_gone(pid: int) -> None:
    """Return when the process `pid` is no longer the parent of this one."""
    while os.getppid() == pid:  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(POLL_S)


async def keep_log_bounded(descriptor: int, bytes_max: int) -> None:
    """Keep the log behind `descriptor` below about `bytes_max`, for ever; its newest half stays.

    Whoever started the node cannot do this without reading all that it writes. Nothing happens
    unless the descriptor is a regular file that can be read and was opened for appending.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    while True:
        cut_log(descriptor, bytes_max)
        await asyncio.sleep(POLL_S)


def cut_log(descriptor: int, bytes_max: int) -> bool:
    """Drop the older half of a log that is larger than `bytes_max`; return whether it was.

    What other threads write during the cut may be lost with the older half.
    """
    size = os.fstat(descriptor).st_size
    if size <= bytes_max:
        return False
    keep = bytes_max // 2
    tail = os.pread(descriptor, keep, size - keep)
    os.ftruncate(descriptor, 0)
    # From a line's start on, so that every line of the log is whole.
    os.write(descriptor, tail[tail.find(b"\n") + 1 :])
    return True
