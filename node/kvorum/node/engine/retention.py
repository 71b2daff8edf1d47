"""Which blocks may be evicted at present: those that nothing continues, reads, leases or pins.

The eviction policy holds exactly these, so finding a victim never means to look past blocks that
must stay, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvorum.core.errors import OverloadedError
from kvorum.node.engine.clock import Clock
from kvorum.node.engine.counters import Counters
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.eviction import EvictionPolicy
from kvorum.node.engine.schedule import Schedule


class Retention:
    """Use, holds, leases and pins of the visible blocks.

    Attributes:
        pinned_bytes: arena bytes of blocks that are pinned or continued by one that is.
    """

    def __init__(
        self, policy: EvictionPolicy, clock: Clock, counters: Counters, pinned_bytes_max: int
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._counters = counters
        self._pinned_bytes_max = pinned_bytes_max
        self._leases: Schedule[Entry] = Schedule()
        self.pinned_bytes = 0

    @property
    def candidates(self) -> int:
        """Blocks that the policy holds."""
        return len(self._policy)

    def touch(self, entry: Entry) -> None:
        """Count a use of `entry` and of all that it continues; once for each event."""
        stamp, now_ms = self._clock.stamp, self._clock.now_ms
        one: Entry | None = entry
        # A block that this event has used already has had its whole line used.
        while one is not None and one.used != stamp:
            one.used = stamp
            one.used_ms = now_ms
            one.uses += 1
            if one.candidate:
                self._policy.touch(one)
            one = one.above

    def lease(self, entries: Iterable[Entry], until_ms: int) -> None:
        """Promise to keep `entries` until then; a longer promise stands."""
        for entry in entries:
            if until_ms > entry.leased_until_ms:
                entry.leased_until_ms = until_ms
                if entry.candidate:
                    self.settle(entry)

    def hold(self, entry: Entry) -> None:
        """Keep `entry` until `release`."""
        entry.holds += 1
        if entry.candidate:
            self.settle(entry)

    def release(self, entry: Entry) -> None:
        """End one `hold`; the entry may have been dropped since."""
        entry.holds -= 1
        if not entry.holds:
            self.settle(entry)

    def settle(self, entry: Entry) -> None:
        """Give `entry` to the policy, or take it back, after something changed."""
        free = entry.live and not entry.children and not entry.holds and not entry.pins
        if free and entry.leased_until_ms > self._clock.now_ms:
            self._leases.set(entry, entry.leased_until_ms)
            free = False
        if free and not entry.candidate:
            entry.candidate = True
            self._policy.insert(entry)
        elif entry.candidate and not free:
            entry.candidate = False
            self._policy.remove(entry)

    def end_leases(self, count_max: int) -> int:
        """Make candidates of at most `count_max` blocks whose lease is over; return how many."""
        count = 0
        while count < count_max:
            entry = self._leases.pop_due(self._clock.now_ms)
            if entry is None:
                break
            self.settle(entry)
            count += 1
        return count

    def victims(self, namespace: Namespace | None) -> Iterator[Entry]:
        """Yield what the policy lets go next, of one namespace or of all."""
        return self._policy.victims(namespace)

    def pin(self, entries: Sequence[Entry]) -> None:
        """Pin `entries`; each keeps all that it continues. Pinning again changes nothing.

        Raises:
            OverloadedError: the pins would pass their limit; then none is pinned.
        """
        fresh: set[Entry] = set()
        for entry in entries:
            for one in entry.line():
                if one.pins or one in fresh:
                    break
                fresh.add(one)
        self._check_pinned(sum(one.payload.arena_bytes for one in fresh))
        for entry in entries:
            if not entry.pinned:
                entry.pinned = True
                self._weigh(entry, 1)

    def unpin(self, entry: Entry) -> None:
        """End the pin of `entry`, if it has one."""
        if entry.pinned:
            entry.pinned = False
            self._weigh(entry, -1)

    def check_growth(self, entry: Entry, arena_bytes: int) -> None:
        """Check whether `entry` may have a payload that is larger by so many bytes.

        Raises:
            OverloadedError: it is pinned, and the pins would pass their limit.
        """
        if entry.pins and arena_bytes > 0:
            self._check_pinned(arena_bytes)

    def grow(self, entry: Entry, arena_bytes: int) -> None:
        """Note that `entry` has another payload, larger by so many bytes (or smaller, below 0)."""
        if entry.pins:
            self.pinned_bytes += arena_bytes

    def forget(self, entry: Entry) -> None:
        """Let go of an entry that is being dropped and that nothing continues any more."""
        self.unpin(entry)
        entry.live = False
        self.settle(entry)
        self._leases.discard(entry)

    def _check_pinned(self, more_bytes: int) -> None:
        if self.pinned_bytes + more_bytes > self._pinned_bytes_max:
            self._counters.refused_overloaded += 1
            raise OverloadedError(
                f"pins hold {self.pinned_bytes} bytes and {more_bytes} more are asked for",
                field="engine.pinned_bytes_max",
                limit=f"{self._pinned_bytes_max} bytes",
            )

    def _weigh(self, entry: Entry, pins: int) -> None:
        for one in entry.line():
            was_pinned = one.pins > 0
            one.pins += pins
            if was_pinned != (one.pins > 0):
                arena_bytes = one.payload.arena_bytes
                self.pinned_bytes += arena_bytes if one.pins else -arena_bytes
                self.settle(one)
