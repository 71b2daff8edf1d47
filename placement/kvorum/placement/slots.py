"""SlotMap: which shard owns each of the 16,384 slots.

The map is explicit: where a slot lives is read, never computed, so it can move on its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, shown


@dataclass(frozen=True, slots=True)
class SlotRun:
    """`count` consecutive slots that `shard` owns."""

    count: int
    shard: int


@dataclass(frozen=True, slots=True)
class SlotMap:
    """The owner of every slot.

    Attributes:
        owners: the shard of slot 0, of slot 1, and so on; exactly 16,384 entries.

    Raises:
        InvalidArgumentError: slots are missing or too many, or a shard number is out of range.
    """

    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.owners) != limits.SLOTS:
            raise InvalidArgumentError(
                f"{len(self.owners)} slots have an owner",
                field="slots",
                limit=f"exactly {limits.SLOTS} slots",
            )
        kinds = set(map(type, self.owners))  # a set of values would take 0.0 and False for 0
        for shard in self.owners if kinds != {int} else set(self.owners):
            check_shard(shard, "slots.shard")

    @classmethod
    def even(cls, shards: int) -> Self:
        """Spread the slots over shards 0 to `shards` - 1 in equal runs, to within one slot.

        Raises:
            InvalidArgumentError: `shards` is not between 1 and `limits.SHARDS_MAX`.
        """
        if not is_integer(shards) or not 1 <= shards <= limits.SHARDS_MAX:
            raise InvalidArgumentError(
                f"{shown(shards)} shards", field="shards", limit=f"1 to {limits.SHARDS_MAX}"
            )
        return cls(tuple(slot * shards // limits.SLOTS for slot in range(limits.SLOTS)))

    @classmethod
    def from_runs(cls, runs: Iterable[SlotRun]) -> Self:
        """Build a map from runs that cover the slots in order.

        Raises:
            InvalidArgumentError: a run is empty, or the runs do not cover the slots exactly.
        """
        owners: list[int] = []
        for index, run in enumerate(runs):
            room = limits.SLOTS - len(owners)
            if not is_integer(run.count) or not 1 <= run.count <= room:
                raise InvalidArgumentError(
                    f"run {index} has {shown(run.count)} slots where {room} are left",
                    field=f"slots[{index}].count",
                    limit=f"1 or more, together exactly {limits.SLOTS} slots",
                )
            check_shard(run.shard, f"slots[{index}].shard")
            owners += [run.shard] * run.count
        return cls(tuple(owners))

    def runs(self) -> tuple[SlotRun, ...]:
        """Return the map as runs, as few as there can be."""
        return tuple(SlotRun(len(list(same)), shard) for shard, same in groupby(self.owners))

    def counts(self) -> Mapping[int, int]:
        """Return how many slots each shard owns; a shard without slots is absent."""
        return Counter(self.owners)

    def owner(self, slot: int) -> int:
        """Return the shard that owns `slot`.

        Raises:
            InvalidArgumentError: there is no such slot.
        """
        if not 0 <= slot < limits.SLOTS:
            raise InvalidArgumentError(
                f"there is no slot {shown(slot)}", field="slot", limit=f"0 to {limits.SLOTS - 1}"
            )
        return self.owners[slot]


def is_integer(value: object) -> bool:
    """Return whether `value` is an `int` and not a `bool`."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_shard(shard: object, field: str) -> None:
    """Check a shard number.

    Raises:
        InvalidArgumentError: not an integer from 0 to `limits.SHARDS_MAX` - 1.
    """
    if isinstance(shard, bool) or not isinstance(shard, int) or not 0 <= shard < limits.SHARDS_MAX:
        raise InvalidArgumentError(
            f"{shown(shard)} is no shard number", field=field, limit=f"0 to {limits.SHARDS_MAX - 1}"
        )
