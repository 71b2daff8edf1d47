"""A queue by due number whose members may be put off, brought forward or taken out at any time.

It orders blocks by last use, leases by their end and expiry by its time. Putting a member off,
which is what every use of a block does, costs one dictionary store: the heap learns of it when
the member comes to the front. What the heap holds too much is at most as much as it needs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

MemberT = TypeVar("MemberT")

_SLACK: Final = 64


class Schedule(Generic[MemberT]):
    """Members, each with a due number; the least comes first, equals in the order they came."""

    __slots__ = ("_due", "_heap", "_items", "_serial")

    def __init__(self) -> None:
        self._due: dict[MemberT, int] = {}
        self._heap: list[tuple[int, int, MemberT]] = []
        # The one item of the heap that counts for a member; it is due with the member or before.
        self._items: dict[MemberT, tuple[int, int, MemberT]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, member: MemberT) -> bool:
        return member in self._due

    def __iter__(self) -> Iterator[MemberT]:
        return iter(self._due)

    def set(self, member: MemberT, due: int) -> None:
        """Put `member` in, or change when it is due."""
        self._due[member] = due
        item = self._items.get(member)
        if item is None or due < item[0]:
            self._push(member, due)

    def discard(self, member: MemberT) -> None:
        """Take `member` out; nothing happens if it is not in."""
        if self._due.pop(member, None) is not None and len(self._heap) > self._room():
            self._rebuild()

    def first(self) -> tuple[MemberT, int] | None:
        """Return the member that is due first with its due number, and leave it in."""
        heap, items = self._heap, self._items
        while heap:
            item = heap[0]
            due, _, member = item
            counts = items.get(member) is item
            current = self._due.get(member) if counts else None
            if current == due:
                return member, due
            heapq.heappop(heap)
            if counts:
                del items[member]
            if current is not None:
                self._push(member, current)
        return None

    def pop_due(self, limit: int) -> MemberT | None:
        """Take out and return the first member if it is due at `limit` or before."""
        head = self.first()
        if head is None or head[1] > limit:
            return None
        self.discard(head[0])
        return head[0]

    def _push(self, member: MemberT, due: int) -> None:
        self._serial += 1
        item = (due, self._serial, member)
        self._items[member] = item
        heapq.heappush(self._heap, item)
        if len(self._heap) > self._room():
            self._rebuild()

    def _room(self) -> int:
        return 2 * len(self._due) + _SLACK

    def _rebuild(self) -> None:
        serials = {member: item[1] for member, item in self._items.items()}
        self._heap = [(due, serials[member], member) for member, due in self._due.items()]
        self._items = {item[2]: item for item in self._heap}
        heapq.heapify(self._heap)
