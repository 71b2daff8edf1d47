"""The node's heap outside its arena: tuned for megabyte frames, and kept in one piece.

glibc gives each thread a heap of its own. gRPC receives on several threads and frees on others, so
each of these heaps would keep frames that are long gone: under 64 streams that measured 60 MB.
"""

from __future__ import annotations

import logging
from typing import Final

from kvorum.client.malloc import set_option, tune

_LOG: Final = logging.getLogger(__name__)
_M_ARENA_MAX: Final = -8


def prepare() -> bool:
    """Tune the allocator; to be called before the process has threads.

    Returns:
        Whether it had an effect; see `set_option`.
    """
    tuned = tune()
    single = set_option(_M_ARENA_MAX, 1)
    _LOG.debug("heap prepared: tuned=%s single=%s", tuned, single)
    return tuned and single
