"""The visible blocks: their places in the segments' trees, and the memory of their payloads.

A block may be stored whose predecessor in the segment is absent. It is an *orphan*: no lookup
finds it, it is the first to be evicted, and it joins its predecessor when that arrives. Refusing
it would be worse: ranks, streams and the pipe deliver the blocks of a prompt in any order, and a
block that was refused for coming a moment too early would be computed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kvorum.node.engine.allocator import Allocator
from kvorum.node.engine.clock import Clock
from kvorum.node.engine.counters import Counters
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.events import Extent, Miss
from kvorum.node.engine.history import History
from kvorum.node.engine.payloads import Payload
from kvorum.node.engine.retention import Retention
from kvorum.node.engine.schedule import Schedule


class Store:
    """Adds, finds, replaces and drops blocks.

    Attributes:
        blocks: blocks that are visible.
        draining_bytes: arena bytes of payloads that no entry has and that readers still read.
        index_bytes: memory that describes payloads.
    """

    def __init__(
        self,
        allocator: Allocator,
        retention: Retention,
        history: History,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._allocator = allocator
        self._retention = retention
        self._history = history
        self._clock = clock
        self._counters = counters
        self._expiry: Schedule[Entry] = Schedule()
        self._graves: deque[list[Entry]] = deque()
        self._rechecks: dict[Namespace, Iterator[Entry]] = {}
        self._owners: dict[int, Entry] = {}
        self.blocks = 0
        self.draining_bytes = 0
        self.index_bytes = 0

    def find(self, namespace: Namespace, key: bytes) -> Entry | None:
        """Return a visible block; one that has outlived its policy is dropped instead."""
        entry = namespace.entries.get(key)
        if entry is not None and namespace.mortal and self.is_expired(entry):
            self.drop(entry, Miss.EXPIRED)
            return None
        return entry

    def is_expired(self, entry: Entry) -> bool:
        """Whether the namespace's policy ends the block now."""
        expires_ms = entry.expires_ms()
        return expires_ms is not None and expires_ms <= self._clock.now_ms

    def owner(self, offset: int) -> Entry | None:
        """Return the visible block one of whose parts lies at `offset` of the arena."""
        return self._owners.get(offset)

    def add(self, entry: Entry) -> None:
        """Make a block visible, and link it to the blocks of its segment that are present."""
        namespace = entry.namespace
        namespace.entries[entry.key] = entry
        entry.live = True
        entry.used_ms = self._clock.now_ms
        self.blocks += 1
        self._attach(entry, entry.payload)
        self._history.forget(namespace, entry.key)
        self._link(entry)
        self._adopt(entry)
        self._retention.touch(entry)
        self._retention.settle(entry)
        self._watch(entry)

    def replace(self, entry: Entry, payload: Payload) -> None:
        """Give a visible block another payload; readers of the old one keep it."""
        old = entry.payload
        self._detach(entry)
        self._retention.grow(entry, payload.arena_bytes - old.arena_bytes)
        entry.payload = payload
        self._attach(entry, payload)
        self._retention.touch(entry)
        self._watch(entry)

    def drop(self, entry: Entry, reason: Miss) -> list[Entry]:
        """Drop a block with all that continue it; return what went, children first."""
        gone = [entry]
        for one in gone:  # grows while it is walked: the tree, level by level
            gone.extend(one.children)
        gone.reverse()
        for one in gone:
            self._drop_leaf(one, reason)
        return gone

    def waiting_for(self, namespace: Namespace, key: bytes) -> tuple[Entry, ...]:
        """Return the blocks that continue the absent block `key`."""
        return tuple(namespace.orphans.get(key, ()))

    def bury(self, namespace: Namespace) -> None:
        """Take a deleted namespace: its blocks are out of sight, their memory comes back later."""
        self._rechecks.pop(namespace, None)
        if namespace.entries:
            self._graves.append(list(namespace.entries.values()))

    def recheck(self, namespace: Namespace) -> None:
        """Look at every block of a namespace again, because its policy changed."""
        self._rechecks[namespace] = iter(tuple(namespace.entries.values()))

    def reclaim(self, count_max: int) -> int:
        """Drop about `count_max` blocks of deleted namespaces; return how many went."""
        count = 0
        while count < count_max and self._graves:
            grave = self._graves[0]
            if not grave:
                self._graves.popleft()
            elif not grave[-1].live:
                grave.pop()
            else:
                count += len(self.drop(grave.pop(), Miss.INVALIDATED))
        return count

    def expire(self, count_max: int) -> int:
        """Drop blocks that have outlived their policy, about `count_max`; return how many."""
        count = self._recheck(count_max)
        while count < count_max:
            due = self._expiry.pop_due(self._clock.now_ms)
            if due is None:
                break
            if self.is_expired(due):
                count += len(self.drop(due, Miss.EXPIRED))
            else:
                self._watch(due)
                count += 1
        return count

    def _recheck(self, count_max: int) -> int:
        count = 0
        while count < count_max and self._rechecks:
            namespace, entries = next(iter(self._rechecks.items()))
            entry = next(entries, None)
            if entry is None:
                del self._rechecks[namespace]
                continue
            count += 1
            if entry.live:
                self._watch(entry)
        return count

    def begin_read(self, payload: Payload) -> None:
        """Keep a payload's bytes until `end_read`."""
        payload.readers += 1

    def end_read(self, payload: Payload) -> None:
        """End one read; the last read of a payload that was dropped frees its memory."""
        payload.readers -= 1
        if not payload.readers and not payload.attached:
            self.draining_bytes -= payload.arena_bytes
            self._free(payload)

    def discard(self, extents: Iterable[Extent]) -> None:
        """Give the memory of extents back that never became visible."""
        for extent in extents:
            self._allocator.free(extent.offset)

    def _drop_leaf(self, entry: Entry, reason: Miss) -> None:
        namespace = entry.namespace
        del namespace.entries[entry.key]
        self.blocks -= 1
        self._unlink(entry)
        self._retention.forget(entry)
        self._expiry.discard(entry)
        self._detach(entry)
        if not namespace.gone:
            self._history.record(namespace, entry.key, reason)
        self._count(entry, reason)
        if entry.above is not None:
            above, entry.above = entry.above, None
            self._retention.settle(above)

    def _count(self, entry: Entry, reason: Miss) -> None:
        if entry.namespace.gone:
            self._counters.unnamed_blocks += 1
        elif reason is Miss.EVICTED:
            self._counters.evicted_blocks += 1
            self._counters.evicted_bytes += entry.payload.arena_bytes
        elif reason is Miss.EXPIRED:
            self._counters.expired_blocks += 1
        elif reason is Miss.CHECKSUM:
            self._counters.corrupt_blocks += 1
        else:
            self._counters.deleted_blocks += 1

    def _link(self, entry: Entry) -> None:
        namespace = entry.namespace
        if namespace.first_in_segment(entry.index):
            return
        above = namespace.entries.get(entry.parent)
        if above is not None and above.index == entry.index - 1:
            entry.above = above
            entry.parent = above.key  # equal bytes: one object less
            above.children.add(entry)
            self._retention.settle(above)
        else:
            namespace.orphans.setdefault(entry.parent, set()).add(entry)

    def _unlink(self, entry: Entry) -> None:
        """Take an entry out of its tree; `entry.above` stays for who must look at it next."""
        if entry.above is not None:
            entry.above.children.discard(entry)
            return
        siblings = entry.namespace.orphans.get(entry.parent)
        if siblings is not None:
            siblings.discard(entry)
            if not siblings:
                del entry.namespace.orphans[entry.parent]

    def _adopt(self, entry: Entry) -> None:
        orphans = entry.namespace.orphans
        waiting = orphans.pop(entry.key, None)
        if waiting is None:
            return
        for child in waiting:
            if child.index == entry.index + 1:
                child.above = entry
                entry.children.add(child)
            else:
                orphans.setdefault(entry.key, set()).add(child)

    def _watch(self, entry: Entry) -> None:
        expires_ms = entry.expires_ms()
        if expires_ms is None:
            self._expiry.discard(entry)
        else:
            self._expiry.set(entry, expires_ms)

    def _attach(self, entry: Entry, payload: Payload) -> None:
        payload.attached = True
        entry.namespace.used_bytes += payload.arena_bytes
        self.index_bytes += payload.index_bytes
        for extent in payload.extents:
            self._owners[extent.offset] = entry

    def _detach(self, entry: Entry) -> None:
        payload = entry.payload
        payload.attached = False
        entry.namespace.used_bytes -= payload.arena_bytes
        for extent in payload.extents:
            del self._owners[extent.offset]
        if payload.readers:
            self.draining_bytes += payload.arena_bytes
        else:
            self._free(payload)

    def _free(self, payload: Payload) -> None:
        self.index_bytes -= payload.index_bytes
        self.discard(payload.extents)
