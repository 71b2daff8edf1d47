"""The node's heap outside its arena: tuned for megabyte frames, and kept in one piece.

glibc gives each thread a heap of its own. gRPC receives on several threads and frees on others, so
each of these heaps would keep frames that are long gone: under 64 streams that measured 60 MB.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from typing import Final

from kvorum.client.malloc import tune

_LOG: Final = logging.getLogger(__name__)
_M_ARENA_MAX: Final = -8


def prepare() -> bool:
    """Tune the allocator; to be called before the process has threads.

    Returns:
        Whether it had an effect; never where the C library is not glibc.
    """
    tuned = tune()
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False  # musl has no mallopt, and one heap
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    single = bool(mallopt(_M_ARENA_MAX, 1))
    _LOG.debug("heap prepared: tuned=%s single=%s", tuned, single)
    return tuned and single
