"""Which cores do what: the client on one, the servers on the others.

Left to itself the scheduler often puts a client and the server that it wakes on one core, where
they take turns instead of working side by side. That halves the rate of a subject that computes on
both sides, by chance, and is no property of what is measured. So all subjects get the same cores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def separate(server_pids: Iterable[int]) -> bool:
    """Give this process the first core and the servers all others; return whether it was done.

    It is not where there is one core only, or no Linux.
    """
    if not hasattr(os, "sched_getaffinity"):
        return False
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        return False
    _place(os.getpid(), {first})
    for pid in server_pids:
        _place(pid, set(others))
    return True


def _place(pid: int, cores: set[int]) -> None:
    """Move every thread of a process; threads that they start later follow."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that just ended
            os.sched_setaffinity(int(task.name), cores)
