"""What is measured: sizes, batches, and the interface of those that are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

KIB: Final = 1 << 10
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """Blocks of one size, moved one by one or in one call.

    Attributes:
        block_bytes: bytes of each block.
        blocks: blocks moved in one measurement.
        batch: whether one call moves all blocks, or each call one.
    """

    block_bytes: int
    blocks: int
    batch: bool

    @property
    def size(self) -> int:
        """Bytes moved in one measurement."""
        return self.block_bytes * self.blocks

    @property
    def label(self) -> str:
        """Name for people, such as "64 KiB x 256, batch"."""
        unit, name = (MIB, "MiB") if self.block_bytes >= MIB else (KIB, "KiB")
        mode = "batch" if self.batch else "single"
        return f"{self.block_bytes // unit} {name} x {self.blocks}, {mode}"


def cases(scale: int) -> list[Case]:
    """Return every case; `scale` divides the number of blocks, for a quick look."""
    sizes = ((64 * KIB, 256), (MIB, 32), (4 * MIB, 16), (16 * MIB, 4))
    return [
        Case(block_bytes, max(count // scale, 1), batch)
        for batch in (False, True)
        for block_bytes, count in sizes
    ]


def payload(case: Case, seed: int) -> list[memoryview]:
    """Return random bytes for every block of a case."""
    data = np.random.default_rng(seed).bytes(case.size)
    view = memoryview(data)
    step = case.block_bytes
    return [view[start : start + step] for start in range(0, case.size, step)]


class Subject(Protocol):
    """A store that is measured. `put` and `get` are timed, `prepare` is not.

    Attributes:
        name: name in the table.
        pid: process id of its server.
    """

    name: str
    pid: int

    def prepare(self, case: Case) -> None:
        """Make ready for a put of new keys, which the gets that follow will read."""

    def put(self, blocks: Sequence[memoryview]) -> None:
        """Store every block."""

    def get(self, into: memoryview) -> None:
        """Read the blocks that were put last into one buffer."""
