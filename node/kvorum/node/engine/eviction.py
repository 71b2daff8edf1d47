"""Which block goes first: the eviction policies.

To add a policy: write a class with the four methods of `EvictionPolicy`, enter it in `POLICIES`
under a name, and choose it with `EngineSettings.eviction`. A policy decides the order and nothing
else: the engine gives it only blocks that may go (no block continues them, and no pin, lease,
read or store holds them), takes them back when that changes, and drops what the policy names.
What a policy may judge by stands in `Entry`: `used`, `used_ms`, `uses`, `depth`, `payload`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from kvorum.core import limits
from kvorum.core.keys import blocks_per_segment
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.schedule import Schedule


class EvictionPolicy(Protocol):
    """An order among the candidates, the blocks that may be evicted at present."""

    def __len__(self) -> int:
        """Return the number of candidates."""

    def __contains__(self, entry: Entry) -> bool:
        """Return whether `entry` is a candidate."""

    def insert(self, entry: Entry) -> None:
        """Take a candidate in; it is not one yet. It may have been used long ago."""

    def touch(self, entry: Entry) -> None:
        """Hear that a candidate was used just now."""

    def remove(self, entry: Entry) -> None:
        """Let a candidate go: it was dropped, or may not be evicted for now."""

    def victims(self, namespace: Namespace | None = None) -> Iterator[Entry]:
        """Yield the candidates of one namespace, or of all, first to go first.

        The caller drops each, which removes it and may insert the block that it continued, before
        it asks for the next.
        """


class PrefixLru:
    """Least recently used first, and of one prompt the end before the beginning.

    Using a block uses all before it in its segment, so a block is never older than one that
    continues it; at equal age the deeper goes first. A block whose predecessor is absent goes
    before all others, because no lookup can find it.
    """

    def __init__(self) -> None:
        self._queues: dict[Namespace, Schedule[Entry]] = {}
        self._heads: Schedule[Namespace] = Schedule()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, entry: Entry) -> bool:
        queue = self._queues.get(entry.namespace)
        return queue is not None and entry in queue

    def insert(self, entry: Entry) -> None:
        """Queue a candidate by its last use."""
        namespace = entry.namespace
        queue = self._queues.get(namespace)
        if queue is None:
            queue = self._queues[namespace] = Schedule()
        order = _order(entry)
        queue.set(entry, order)
        self._count += 1
        head = queue.first()
        if head is not None and head[0] is entry:
            self._heads.set(namespace, order)

    def touch(self, entry: Entry) -> None:
        """Put a candidate off."""
        self._queues[entry.namespace].set(entry, _order(entry))

    def remove(self, entry: Entry) -> None:
        """Take a candidate out."""
        queue = self._queues[entry.namespace]
        queue.discard(entry)
        self._count -= 1
        if not queue:
            del self._queues[entry.namespace]
            self._heads.discard(entry.namespace)

    def victims(self, namespace: Namespace | None = None) -> Iterator[Entry]:
        """Yield the least recently used candidate, again and again."""
        while True:
            chosen = self._oldest() if namespace is None else namespace
            queue = None if chosen is None else self._queues.get(chosen)
            head = None if queue is None else self._first(queue)
            if head is None:
                return
            yield head[0]

    def _oldest(self) -> Namespace | None:
        """Return the namespace with the oldest candidate."""
        while (head := self._heads.first()) is not None:
            namespace, recorded = head
            first = self._first(self._queues[namespace])
            if first is None or first[1] == recorded:
                return namespace
            self._heads.set(namespace, first[1])
        return None

    @staticmethod
    def _first(queue: Schedule[Entry]) -> tuple[Entry, int] | None:
        """Return the oldest candidate of a queue, after a look at whether it is still an orphan."""
        while (head := queue.first()) is not None:
            entry, order = head
            current = _order(entry)
            if current == order:
                return head
            queue.set(entry, current)
        return None


_DEPTH_BITS: Final = (blocks_per_segment(limits.BLOCK_TOKENS_MULTIPLE) - 1).bit_length()
_ORPHANS_FIRST: Final = -(1 << 62)


def _order(entry: Entry) -> int:
    """Return the due number of an entry: by age, then deepest first; orphans before all."""
    deepest = (1 << _DEPTH_BITS) - 1
    order = (entry.used << _DEPTH_BITS) + deepest - entry.depth
    return order if entry.reachable else order + _ORPHANS_FIRST


POLICIES: Final[Mapping[str, Callable[[], EvictionPolicy]]] = MappingProxyType(
    {"prefix-lru": PrefixLru}
)
"""Every policy by the name that settings choose it by."""
