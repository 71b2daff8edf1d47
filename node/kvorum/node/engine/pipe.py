"""The pipe to one peer: what it still has to be told, in order, bounded, until it acknowledges.

The pipe holds names, not bytes: a block is read from the arena when it is sent, and one that is
gone by then is skipped. So a block that waits twice is sent once, as it is when its turn comes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.engine.events import NamespaceId, Replicate, ReplicateTombstone

_BlockName: TypeAlias = "tuple[NamespaceId, bytes]"


@dataclass(frozen=True, slots=True)
class PipeEntry:
    """One step of this node's history: `effect` at position `sequence`, noted at `pushed_ms`."""

    sequence: int
    effect: Replicate | ReplicateTombstone
    pushed_ms: int

    @property
    def size_bytes(self) -> int:
        """Bytes that sending it takes, apart from its description."""
        return self.effect.size_bytes if isinstance(self.effect, Replicate) else 0


@dataclass(frozen=True, slots=True)
class PipeLag:
    """What the peer has not acknowledged: how much, and how old in milliseconds."""

    entries: int
    bytes: int
    ms: int


class Pipe:
    """Entries that wait, and entries that were sent and wait for their acknowledgement.

    `capacity_entries` and `capacity_bytes` bound both together; past them the oldest entry that
    was not sent is let go and counted, for repair to find. `window_entries` and `window_bytes`
    bound what is under way; an entry larger than the window goes alone.

    Attributes:
        acknowledged: last position that the peer acknowledged.
        overflowed: entries that were let go.
        refused: entries that the peer could not keep.

    Raises:
        InvalidArgumentError: a bound is not positive.
    """

    def __init__(
        self,
        capacity_entries: int,
        capacity_bytes: int,
        *,
        window_entries: int = 64,
        window_bytes: int = 32 << 20,
    ) -> None:
        bounds = (capacity_entries, capacity_bytes, window_entries, window_bytes)
        if min(bounds) <= 0:
            raise InvalidArgumentError(
                f"a pipe has the bounds {bounds}", field="pipe", limit="at least 1 each"
            )
        self._capacity_entries = capacity_entries
        self._capacity_bytes = capacity_bytes
        self._window_entries = window_entries
        self._window_bytes = window_bytes
        self._waiting: OrderedDict[int, PipeEntry] = OrderedDict()
        self._sent: OrderedDict[int, PipeEntry] = OrderedDict()
        self._stores: dict[_BlockName, int] = {}
        self._waiting_bytes = 0
        self._sent_bytes = 0
        self._sequence = 0
        self._sent_last = 0
        self.acknowledged = 0
        self.overflowed = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    def push(self, effect: Replicate | ReplicateTombstone, now_ms: int) -> int:
        """Add an entry at the end and return its position, from 1.

        It takes the place of an entry that waits to send the same block: a block is sent as it is
        then, so the earlier entry would send this one's bytes.
        """
        self._sequence += 1
        entry = PipeEntry(self._sequence, effect, now_ms)
        if isinstance(effect, Replicate):
            name = (effect.namespace, effect.key)
            earlier = self._stores.get(name)
            if earlier is not None:
                self._remove(earlier)
            self._stores[name] = entry.sequence
        self._waiting[entry.sequence] = entry
        self._waiting_bytes += entry.size_bytes
        while self._waiting and self._is_over():
            self._remove(next(iter(self._waiting)))
            self.overflowed += 1
        return self._sequence

    def take(self) -> tuple[PipeEntry, ...]:
        """Return what may be sent now, in order; it counts as sent."""
        taken = []
        while self._waiting and len(self._sent) < self._window_entries:
            entry = next(iter(self._waiting.values()))
            if self._sent and self._sent_bytes + entry.size_bytes > self._window_bytes:
                break
            self._remove(entry.sequence)
            self._sent[entry.sequence] = entry
            self._sent_last = max(self._sent_last, entry.sequence)
            self._sent_bytes += entry.size_bytes
            taken.append(entry)
        return tuple(taken)

    def acknowledge(self, sequence: int, refused: Collection[int] = ()) -> int:
        """Forget every entry up to `sequence`; return how many.

        `refused` names those among them that the peer could not keep. After a reconnection the
        peer may acknowledge what was sent before; that need not be sent again then.

        Raises:
            InvalidArgumentError: the peer acknowledges what was never sent.
        """
        if sequence > self._sent_last:
            raise InvalidArgumentError(
                f"the peer acknowledges {sequence}",
                field="acknowledged_sequence",
                limit=f"{self._sent_last}, the last that was sent",
            )
        gone = []
        while self._sent and next(iter(self._sent)) <= sequence:
            position, entry = self._sent.popitem(last=False)
            self._sent_bytes -= entry.size_bytes
            gone.append(position)
        while self._waiting and (position := next(iter(self._waiting))) <= sequence:
            self._remove(position)
            gone.append(position)
        self.refused += sum(position in refused for position in gone)
        self.acknowledged = max(self.acknowledged, sequence)
        return len(gone)

    def reconnect(self) -> None:
        """Let everything that was sent and not acknowledged wait again, in its old place.

        A block that waits anyway, because it was stored again, is left to that entry.
        """
        while self._sent:
            position, entry = self._sent.popitem()
            if isinstance(entry.effect, Replicate):
                name = (entry.effect.namespace, entry.effect.key)
                if name in self._stores:
                    continue
                self._stores[name] = position
            self._waiting[position] = entry
            self._waiting.move_to_end(position, last=False)
            self._waiting_bytes += entry.size_bytes
        self._sent_bytes = 0

    def lag(self, now_ms: int) -> PipeLag:
        """Return what the peer has not acknowledged."""
        oldest = next(iter(self._sent.values()), None) or next(iter(self._waiting.values()), None)
        age_ms = 0 if oldest is None else max(0, now_ms - oldest.pushed_ms)
        return PipeLag(len(self), self._sent_bytes + self._waiting_bytes, age_ms)

    def _is_over(self) -> bool:
        return (
            len(self) > self._capacity_entries
            or self._sent_bytes + self._waiting_bytes > self._capacity_bytes
        )

    def _remove(self, sequence: int) -> None:
        entry = self._waiting.pop(sequence)
        self._waiting_bytes -= entry.size_bytes
        if isinstance(entry.effect, Replicate):
            name = (entry.effect.namespace, entry.effect.key)
            if self._stores.get(name) == sequence:
                del self._stores[name]
