"""FetchPlan: which replica to ask for which block of a fetch, and when nothing more can come. Pure.

Only the contiguous prefix counts, so nothing is asked for behind a block that no replica can
deliver. A block is written by one answer at a time: the first that claims it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvorum.client.results import MissReason


@dataclass(slots=True)
class _Block:
    """One block of the hit.

    Attributes:
        untried: replicas that may still be asked for it, nearest first.
        attempts: times that a replica was asked for it.
        not_before: when to ask the next one, in seconds.
        open: answers under way that may still bring it.
        owner: the answer that writes it now.
        received: whether it is there, intact.
        reason: why the last answer did not bring it.
    """

    untried: list[str]
    attempts: int = 0
    not_before: float = 0.0
    open: int = 0
    owner: object = None
    received: bool = False
    reason: MissReason = MissReason.TIMEOUT


class FetchPlan:
    """The blocks of one fetch, by position.

    Args:
        candidates: the replicas of each block, nearest first.
        attempts_max: times that replicas are asked for one block.
        allows: says whether a node is worth asking.
    """

    def __init__(
        self,
        candidates: Iterable[Sequence[str]],
        attempts_max: int,
        allows: Callable[[str], bool],
    ) -> None:
        self._blocks = [_Block(list(nodes)) for nodes in candidates]
        self._attempts_max = attempts_max
        self._allows = allows

    # ------------------------------------------------------------ what to do

    def assign(self, now: float) -> dict[str, list[int]]:
        """Return which node to ask for which positions now; `started` must follow."""
        by_node: defaultdict[str, list[int]] = defaultdict(list)
        for position, block in enumerate(self._blocks):
            if block.received or block.open or (block.untried and now < block.not_before):
                continue
            node = self._next(block)
            if node is None:
                break
            by_node[node].append(position)
        return dict(by_node)

    def _next(self, block: _Block) -> str | None:
        while block.untried and block.attempts < self._attempts_max:
            node = block.untried.pop(0)
            if self._allows(node):
                return node
            block.reason = MissReason.NODE_DOWN
        block.untried.clear()
        return None

    def hedge(self, positions: Iterable[int]) -> dict[str, list[int]]:
        """Return which other node to ask for positions that are slow; `started` must follow."""
        by_node: defaultdict[str, list[int]] = defaultdict(list)
        for position in positions:
            block = self._blocks[position]
            node = next((node for node in block.untried if self._allows(node)), None)
            if node is not None and not block.received and block.attempts < self._attempts_max:
                by_node[node].append(position)
        return dict(by_node)

    def due(self) -> float:
        """Return when a block may be asked for again; infinity if none waits."""
        waiting = (b.not_before for b in self._blocks if b.untried and not (b.received or b.open))
        return min(waiting, default=float("inf"))

    def settled(self) -> bool:
        """Return whether all blocks arrived, or all before one that cannot arrive any more."""
        for block in self._blocks:
            if not block.received:
                return not block.open and not block.untried
        return True

    def prefix(self) -> tuple[int, MissReason | None]:
        """Return how many blocks from the first arrived, and why not the next one."""
        for position, block in enumerate(self._blocks):
            if not block.received:
                return position, MissReason.TIMEOUT if block.open else block.reason
        return len(self._blocks), None

    def received(self) -> frozenset[int]:
        """Return the positions of all blocks that arrived, those behind a gap included."""
        return frozenset(at for at, block in enumerate(self._blocks) if block.received)

    # ------------------------------------------------------------ what happened

    def skip(self, positions: Iterable[int]) -> None:
        """Blocks are there already, intact."""
        for position in positions:
            self._blocks[position].received = True

    def started(self, node: str, positions: Iterable[int]) -> bool:
        """A node was asked for positions; return whether any was asked for before."""
        again = False
        for position in positions:
            block = self._blocks[position]
            again |= block.attempts > 0
            block.attempts += 1
            block.open += 1
            if node in block.untried:
                block.untried.remove(node)
        return again

    def claim(self, position: int, owner: object) -> bool:
        """Return whether an answer may write to a position; no other may until it is over."""
        block = self._blocks[position]
        if block.received or block.owner is not None:
            return False
        block.owner = owner
        return True

    def done(self, position: int, owner: object, outcome: MissReason | bool) -> None:
        """An answer is over for a position; see `Assembly`."""
        block = self._blocks[position]
        block.open -= 1
        if block.owner is owner:
            block.owner = None
        if outcome is True:
            block.received = True
        elif isinstance(outcome, MissReason):
            block.reason = outcome

    def postpone(self, node: str, positions: Iterable[int], until: float) -> None:
        """A node was too busy: it may be asked again for positions, but not before `until`."""
        for position in positions:
            block = self._blocks[position]
            if not block.received:
                block.untried.append(node)
                block.not_before = until if len(block.untried) == 1 else 0.0
