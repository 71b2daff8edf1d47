"""What the engine remembers of blocks that are gone: why each went, and which were deleted."""

from __future__ import annotations

from collections import OrderedDict

from kvorum.node.engine.clock import Clock
from kvorum.node.engine.entries import Namespace
from kvorum.node.engine.events import Miss


class History:
    """Why blocks went; the latest `blocks_max` of them."""

    def __init__(self, blocks_max: int) -> None:
        self._blocks_max = blocks_max
        self._reasons: OrderedDict[bytes, Miss] = OrderedDict()

    def __len__(self) -> int:
        return len(self._reasons)

    def record(self, namespace: Namespace, key: bytes, reason: Miss) -> None:
        """Remember that a block went."""
        name = namespace.tag + key
        self._reasons[name] = reason
        self._reasons.move_to_end(name)
        if len(self._reasons) > self._blocks_max:
            self._reasons.popitem(last=False)

    def forget(self, namespace: Namespace, key: bytes) -> None:
        """The block is back."""
        self._reasons.pop(namespace.tag + key, None)

    def reason(self, namespace: Namespace, key: bytes) -> Miss:
        """Return why the block is absent, as far as is remembered."""
        return self._reasons.get(namespace.tag + key, Miss.NEVER_STORED)


class Tombstones:
    """Deletes by hybrid time, so that a replica from before a delete does not undo it.

    Bounded in number and in age: what a peer sends later than both bounds may come back, and is
    then a block of the right bytes that somebody asked to be rid of.
    """

    def __init__(self, tombstones_max: int, ttl_ms: int, clock: Clock) -> None:
        self._tombstones_max = tombstones_max
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._hybrid: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self.overflowed = 0

    def __len__(self) -> int:
        return len(self._hybrid)

    def record(self, namespace: Namespace, key: bytes, hybrid: int) -> None:
        """Remember that the block was deleted at `hybrid`; the latest delete counts."""
        name = namespace.tag + key
        latest = max(hybrid, self._hybrid.get(name, (0, 0))[0])
        self._hybrid[name] = (latest, self._clock.now_ms)
        self._hybrid.move_to_end(name)
        if len(self._hybrid) > self._tombstones_max:
            self._hybrid.popitem(last=False)
            self.overflowed += 1

    def latest(self, namespace: Namespace, key: bytes) -> int:
        """Return the hybrid time of the block's latest delete; 0 if none is remembered."""
        return self._hybrid.get(namespace.tag + key, (0, 0))[0]

    def expire(self, count_max: int) -> int:
        """Forget at most `count_max` tombstones that are too old; return how many."""
        horizon = self._clock.now_ms - self._ttl_ms
        count = 0
        while count < count_max and self._hybrid:
            name = next(iter(self._hybrid))
            if self._hybrid[name][1] > horizon:
                break
            del self._hybrid[name]
            count += 1
        return count
