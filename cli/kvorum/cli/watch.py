"""What a node of a local cluster watches beside its work: its parent, and the size of its log.

In a thread of its own, so that it goes on when the event loop is stuck.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from typing import Final

POLL_S: Final = 0.5
"""Seconds between two looks."""

LAST_S: Final = 30.0
"""Seconds that a node has to end after its parent is gone, before it is killed."""


def start_watch(parent_pid: int | None, log_bytes_max: int | None) -> None:
    """Watch from now on; None for what is not to be watched.

    Args:
        parent_pid: when this is no longer the parent, the process ends as by SIGTERM, and at the
            latest 30 s later.
        log_bytes_max: keeps the log on stderr below about this size, if it is a regular file.
    """
    if parent_pid is None and log_bytes_max is None:
        return
    arguments = (parent_pid, log_bytes_max)
    threading.Thread(target=_watch, args=arguments, name="watch", daemon=True).start()


def _watch(parent_pid: int | None, log_bytes_max: int | None) -> None:
    stderr = 2
    bounded = log_bytes_max is not None and stat.S_ISREG(os.fstat(stderr).st_mode)
    while parent_pid is None or os.getppid() == parent_pid:
        if bounded and log_bytes_max is not None:
            cut_log(stderr, log_bytes_max)
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_S)
    os.kill(os.getpid(), signal.SIGKILL)


def cut_log(descriptor: int, bytes_max: int) -> bool:
    """Drop the older half of a log that is larger than `bytes_max`; return whether it was.

    Whoever started the process cannot do this without reading all that it writes. The descriptor
    must be readable and opened for appending. What other threads write during the cut may be lost
    with the older half.
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
