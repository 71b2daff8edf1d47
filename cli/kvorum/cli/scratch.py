"""Scratch: the temporary directory of a local cluster, which holds its secrets.

A cluster that ends removes it; one that is killed cannot, so the next one does. A lock tells which
are in use: it is held for as long as the process lives, and the kernel lets go of it however the
process ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from itertools import islice
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger(__name__)

_PREFIX: Final = "kvorum-"
_LOCK: Final = "lock"
_LOOKED_AT_MAX: Final = 256


class Scratch:
    """A directory of its own, readable by its owner only.

    Attributes:
        path: the directory.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked before it has its name: who sweeps must never find it free.
        unnamed = self.path / f"{_LOCK}.new"
        self._lock = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Remove the directory with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep() -> list[Path]:
    """Remove the directories of clusters that were killed; return them.

    It looks at no more than 256 directories, and only at this user's own.
    """
    candidates = Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}")
    return [lock.parent for lock in islice(candidates, _LOOKED_AT_MAX) if _sweep(lock)]


def _sweep(path: Path) -> bool:
    """Remove the directory of a lock that nobody holds; return whether that was so."""
    try:
        if not _is_own(path.parent):
            return False
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        _LOG.debug("scratch directory passed over: path=%s: %s", path.parent, error)
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False  # its cluster lives
    else:
        shutil.rmtree(path.parent, ignore_errors=True)
        _LOG.info("scratch directory of a killed cluster removed: path=%s", path.parent)
        return True
    finally:
        os.close(lock)


def _is_own(directory: Path) -> bool:
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
