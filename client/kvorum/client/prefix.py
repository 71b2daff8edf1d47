"""PrefixMerge: the longest prefix that several nodes' answers add up to. Pure.

A hit that one zone knows counts whatever the others say or fail to say. What is missing decides
which nodes are worth asking or waiting for: only those that should hold the first missing block.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from kvorum.client.results import MissReason

_TELLING: Final = (
    MissReason.DENIED,
    MissReason.FINGERPRINT,
    MissReason.INVALIDATED,
    MissReason.EXPIRED,
    MissReason.EVICTED,
    MissReason.CHECKSUM,
    MissReason.OFFLOADED,
    MissReason.STALE_EPOCH,
    MissReason.TIMEOUT,
    MissReason.NEVER_STORED,
    MissReason.NODE_DOWN,
)
"""If replicas give different reasons, the first of these holds."""


class Seen(NamedTuple):
    """What one node says about one block; `miss` is None if it holds the block."""

    miss: MissReason | None
    group: int = 0
    size_bytes: int = 0
    parts: int = 0


class Found(NamedTuple):
    """A block of the prefix: what it is, and the nodes that hold this group, nearest first."""

    seen: Seen
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive blocks with the same replicas, nearest first."""

    begin: int
    end: int
    replicas: tuple[str, ...]


class PrefixMerge:
    """Adds answers up.

    Attributes:
        found: the blocks of the prefix so far.

    Args:
        spans: all blocks of the prompt, in order and without a gap.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.found: list[Found] = []
        self._spans = spans
        self._count = spans[-1].end if spans else 0
        self._at = 0  # span of the first missing block
        self._answers: dict[str, Sequence[Seen | None]] = {}
        self._failures: dict[str, MissReason] = {}

    @property
    def complete(self) -> bool:
        """Whether every block was found."""
        return len(self.found) == self._count

    def answer(self, node: str, blocks: Sequence[Seen | None]) -> None:
        """Take a node's answer: one entry for each block, None where it is not responsible."""
        self._answers[node] = blocks
        self._advance()

    def fail(self, node: str, reason: MissReason) -> None:
        """Take note that a node gave no answer."""
        self._failures[node] = reason

    def first(self) -> list[str]:
        """Return the nearest replica of every span that did not fail, without repetition."""
        nearest: dict[str, None] = {}
        for span in self._spans:
            alive = (node for node in span.replicas if node not in self._failures)
            nearest.update(dict.fromkeys(islice(alive, 1)))
        return list(nearest)

    def wanted(self, asked: Collection[str]) -> list[str]:
        """Return the replicas of the first missing block that were not asked yet."""
        if self.complete:
            return []
        replicas = self._spans[self._at].replicas
        return [node for node in replicas if node not in asked and node not in self._failures]

    def short(self) -> bool:
        """Return whether a replica of the first missing block has answered or failed."""
        if self.complete:
            return False
        known = self._answers.keys() | self._failures.keys()
        return not known.isdisjoint(self._spans[self._at].replicas)

    def hopes(self, pending: Collection[str]) -> list[str]:
        """Return those of `pending` that may still hold the first missing block."""
        if self.complete:
            return []
        return [node for node in self._spans[self._at].replicas if node in pending]

    def reason(self) -> MissReason | None:
        """Return why the first missing block is missing; None if every block was found."""
        if self.complete:
            return None
        index = len(self.found)
        replicas = self._spans[self._at].replicas
        reasons = {self._failures[node] for node in replicas if node in self._failures}
        for blocks in self._answers.values():
            seen = blocks[index] if index < len(blocks) else None
            if seen is not None and seen.miss is not None:
                reasons.add(seen.miss)
        return next((reason for reason in _TELLING if reason in reasons), MissReason.NODE_DOWN)

    def _advance(self) -> None:
        while not self.complete:
            span = self._spans[self._at]
            self._extend(span)
            if len(self.found) < span.end:
                return
            self._at += 1

    def _extend(self, span: Span) -> None:
        """Append the blocks of a span up to the first that no node holds."""
        order = [node for node in span.replicas if node in self._answers]
        order += [node for node in self._answers if node not in span.replicas]
        answers = [(node, self._answers[node]) for node in order]
        for index in range(len(self.found), span.end):
            best: Seen | None = None
            nodes: list[str] = []
            for node, blocks in answers:
                seen = blocks[index] if index < len(blocks) else None
                if seen is None or seen.miss is not None:
                    continue
                best = best or seen
                if seen == best:
                    nodes.append(node)
            if best is None:
                return
            self.found.append(Found(best, tuple(nodes)))
