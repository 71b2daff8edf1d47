"""Groups of parts on their way to becoming visible: one for each block and writer.

Parts of two writers never meet: a group belongs to one writer and one condition. A group's
committed parts wait a bounded time for the others. While a writer still fills a part its extent
stays, whatever happens to the group, because bytes may yet be written there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from kvorum.node.engine.clock import Clock
from kvorum.node.engine.counters import Counters
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.events import Condition, Extent, WriteItem
from kvorum.node.engine.retention import Retention
from kvorum.node.engine.room import Room
from kvorum.node.engine.schedule import Schedule

BlockName: TypeAlias = "tuple[Namespace, bytes]"
GroupName: TypeAlias = "tuple[str, Condition, int]"


@dataclass(slots=True, eq=False)
class StagedGroup:
    """One writer's parts of one block.

    Attributes:
        namespace: where it belongs.
        item: the announcement of its first part; the others agree on the block's place.
        writer: who writes it.
        condition: when it may be stored.
        parts: committed parts.
        open: parts that are being filled.
        held: the visible blocks that it replaces or continues, kept meanwhile.
    """

    namespace: Namespace
    item: WriteItem
    writer: str
    condition: Condition
    parts: dict[int, Extent] = field(default_factory=dict)
    open: int = 0
    held: tuple[Entry, ...] = ()

    @property
    def name(self) -> GroupName:
        """What sets it apart among the groups of its block."""
        return self.writer, self.condition, self.item.if_group

    @property
    def complete(self) -> bool:
        """Whether all parts are committed."""
        return len(self.parts) == self.item.parts

    def extents(self) -> tuple[Extent, ...]:
        """Return the committed parts in order."""
        return tuple(self.parts[part] for part in sorted(self.parts))


class Staging:
    """All groups that are not complete."""

    def __init__(
        self, room: Room, retention: Retention, clock: Clock, counters: Counters, ttl_ms: int
    ) -> None:
        self._room = room
        self._retention = retention
        self._clock = clock
        self._counters = counters
        self._ttl_ms = ttl_ms
        self._blocks: dict[BlockName, dict[GroupName, StagedGroup]] = {}
        self._waiting: Schedule[StagedGroup] = Schedule()

    def __iter__(self) -> Iterator[StagedGroup]:
        for groups in self._blocks.values():
            yield from groups.values()

    def find(self, namespace: Namespace, key: bytes, name: GroupName) -> StagedGroup | None:
        """Return a writer's group of a block, or None."""
        return self._blocks.get((namespace, key), {}).get(name)

    def add(self, group: StagedGroup) -> None:
        """Begin a group, and keep what it continues or replaces from eviction meanwhile."""
        groups = self._blocks.setdefault((group.namespace, group.item.key), {})
        groups[group.name] = group
        for entry in group.held:
            self._retention.hold(entry)
        self._put_off(group)

    def open_part(self, group: StagedGroup) -> None:
        """Note that a writer begins to fill a part."""
        group.open += 1
        self._put_off(group)

    def close_part(self, group: StagedGroup) -> None:
        """Note that a writer is done with a part, one way or the other."""
        group.open -= 1
        self._put_off(group)

    def keep(self, group: StagedGroup, part: int, extent: Extent) -> bool:
        """Add a committed part; return whether the group had to begin anew for it.

        A part that comes again with the same checksums is spare. One with other checksums belongs
        to another computation than the parts that are here: they go.
        """
        old = group.parts.get(part)
        if old is not None and old.is_same(extent.frame_sizes, extent.frame_crc32c):
            self._room.give_back(group.namespace, (extent,))
            return False
        if old is not None:
            self._empty(group)
        group.parts[part] = extent
        return old is not None

    def hand_over(self, group: StagedGroup) -> None:
        """Let go of a group's parts: they belong to a visible block from now on."""
        self._room.unstage(group.namespace, group.parts.values())
        group.parts.clear()

    def end(self, group: StagedGroup) -> None:
        """Give the memory of a group's committed parts back, and forget it if nobody fills one."""
        self._empty(group)
        if group.open:
            return
        groups = self._blocks[group.namespace, group.item.key]
        del groups[group.name]
        if not groups:
            del self._blocks[group.namespace, group.item.key]
        self._waiting.discard(group)
        held, group.held = group.held, ()
        for entry in held:
            self._retention.release(entry)

    def end_if_idle(self, group: StagedGroup) -> None:
        """Forget a group that has no part, neither committed nor being filled."""
        if not group.parts and not group.open:
            self.end(group)

    def end_losers(self, namespace: Namespace, key: bytes) -> None:
        """End the groups that wanted to store a block only if it was absent: it is there now."""
        for group in tuple(self._blocks.get((namespace, key), {}).values()):
            if group.condition is Condition.IF_ABSENT:
                self.end(group)

    def end_namespace(self, namespace: Namespace) -> None:
        """End all groups of a namespace that was deleted."""
        for group in tuple(self):
            if group.namespace is namespace:
                self.end(group)

    def expire(self, count_max: int) -> int:
        """End at most `count_max` groups that waited too long for a part; return how many."""
        count = 0
        while count < count_max:
            group = self._waiting.pop_due(self._clock.now_ms)
            if group is None:
                break
            count += 1
            if group.open:
                self._put_off(group)
            else:
                self._counters.staged_expired += 1
                self.end(group)
        return count

    def _empty(self, group: StagedGroup) -> None:
        self._room.give_back(group.namespace, group.parts.values())
        group.parts.clear()

    def _put_off(self, group: StagedGroup) -> None:
        self._waiting.set(group, self._clock.now_ms + self._ttl_ms)
