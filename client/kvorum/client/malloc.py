"""glibc's allocator thresholds: the biggest single knob of a large transfer.

By default glibc takes blocks over 128 KiB from the kernel one by one and gives them back at once,
so that every megabyte received is paged in anew: large transfers run at half speed. The thresholds
hold for the whole process; `KVORUM_MALLOC_TUNING=0` in its environment leaves them as they are.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from typing import Final

_LOG: Final = logging.getLogger(__name__)

SWITCH: Final = "KVORUM_MALLOC_TUNING"

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES: Final = 32 << 20  # the most that glibc accepts
_TRIM_BYTES: Final = 128 << 20


def tune() -> bool:
    """Make glibc keep freed blocks of up to 32 MiB, and 128 MiB in all, for the next transfer.

    Returns:
        Whether it had an effect; see `set_option`.
    """
    # Both are needed: the first says where blocks come from, the second when free memory at the
    # end of the heap goes back.
    done = set_option(_M_MMAP_THRESHOLD, _MMAP_BYTES) and set_option(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    _LOG.debug("malloc tuned: ok=%s", done)
    return done


def set_option(option: int, value: int) -> bool:
    """Set an option of glibc's allocator, by its number in `malloc.h`.

    Returns:
        Whether it was set; never where the C library is another one, or the environment says no.
    """
    if os.environ.get(SWITCH) == "0" or not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False  # musl has no mallopt
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(mallopt(option, value))
