"""A simple model of the engine: which blocks may be seen, and with which bytes.

It knows nothing of memory: which blocks go to make room it learns from the engine, and checks
only that they could go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvorum.node.engine.events import Condition, Miss, Policy
from tests.unit.node.engine.prompts import SEGMENT

Content = tuple[int, ...]
GroupName = tuple[str, str, Condition, int]


@dataclass(eq=False)
class Seen:
    """A block that is visible."""

    group: int
    clock: int
    overwrite: bool
    parts: dict[int, Content]
    stored_ms: int
    used_ms: int = 0
    leased_until_ms: int = 0
    pinned: bool = False
    held_with: set[int] = field(default_factory=set)  # open reads of it and of what it replaced

    def rank(self) -> tuple[bool, int, int]:
        """An overwrite beats a plain store; the latest overwrite wins, the first plain store."""
        return rank(self.group, self.clock, self.overwrite)


def rank(group: int, clock: int, overwrite: bool) -> tuple[bool, int, int]:
    """See `Seen.rank`."""
    return (True, clock, group) if overwrite else (False, -clock, -group)


@dataclass(eq=False)
class Model:
    """One namespace."""

    policy: Policy
    blocks: dict[str, Seen] = field(default_factory=dict)
    committed: dict[GroupName, dict[int, Content]] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, Miss] = field(default_factory=dict)

    def expires_ms(self, word: str) -> int:
        """Return when the policy ends a block; 0 for never. No policy here has both times."""
        block, policy = self.blocks[word], self.policy
        if policy.ttl_ms:
            return block.stored_ms + policy.ttl_ms
        return block.used_ms + policy.idle_ttl_ms if policy.idle_ttl_ms else 0

    def expired(self, word: str, now_ms: int) -> bool:
        """Whether the policy ends a block now."""
        return 0 < self.expires_ms(word) <= now_ms

    def find(self, word: str, now_ms: int) -> Seen | None:
        """Return a visible block; drop it if it has expired."""
        if word in self.blocks and self.expired(word, now_ms):
            self.drop(word, Miss.EXPIRED)
        return self.blocks.get(word)

    def line(self, word: str) -> Iterator[Seen]:
        """Yield a visible block and those before it in its segment, up to the first gap."""
        while word in self.blocks:
            yield self.blocks[word]
            if first_in_segment(word):
                return
            word = word[:-1]

    def reachable(self, word: str) -> bool:
        """Whether every block of the segment up to this one is visible."""
        while word in self.blocks:
            if first_in_segment(word):
                return True
            word = word[:-1]
        return False

    def touch(self, word: str, now_ms: int) -> None:
        """Count a use of a block and of those before it."""
        for block in self.line(word):
            block.used_ms = now_ms

    def children(self, word: str) -> list[str]:
        """Return the visible blocks of the same segment that continue a block."""
        return [one for one in self.blocks if one[:-1] == word and not first_in_segment(one)]

    def drop(self, word: str, reason: Miss) -> list[str]:
        """Drop a block with all that continue it."""
        gone = [word]
        for child in self.children(word):
            gone += self.drop(child, reason)
        self.blocks.pop(word, None)
        self.reasons[word] = reason
        return gone

    def reason(self, word: str) -> Miss:
        """Return why a block is absent."""
        return self.reasons.get(word, Miss.NEVER_STORED)

    def kept(self, word: str, now_ms: int) -> bool:
        """Whether a lease or a pin keeps a block."""
        block = self.blocks[word]
        if block.pinned or block.leased_until_ms > now_ms:
            return True
        return any(self.kept(child, now_ms) for child in self.children(word))

    def walk(self, segment: list[str], now_ms: int) -> list[Miss | None]:
        """Return what a lookup says of a segment's blocks: behind a gap all are missing."""
        views: list[Miss | None] = []
        gap: Miss | None = None
        for word in segment:
            absent = None if self.find(word, now_ms) else self.reason(word)
            gap = gap or absent
            views.append(absent or gap)
        return views

    def deleted(self, word: str, clock: int) -> bool:
        """Whether a delete of a block or of the one before it is later than a peer's store."""
        if self.tombstones.get(word, 0) >= clock:
            return True
        before = 0 if first_in_segment(word) else self.tombstones.get(word[:-1], 0)
        if before >= clock:
            self.tombstones[word] = max(self.tombstones.get(word, 0), before)
        return before >= clock

    def outranks(self, word: str, group: int, clock: int, overwrite: bool) -> bool:
        """Whether our block stays when a peer offers one; the times of one group become one."""
        ours = self.blocks.get(word)
        if ours is None:
            return False
        better = rank(group, clock, overwrite) > ours.rank()
        if ours.group != group:
            return not better
        if better:
            ours.clock, ours.overwrite = clock, overwrite
        return True


def first_in_segment(word: str) -> bool:
    """Whether a block begins a segment."""
    return (len(word) - 1) % SEGMENT == 0
