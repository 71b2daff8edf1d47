"""plan(): the fewest slot moves that restore balance after shards came, went or changed weight."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, shown
from kvorum.placement.slots import SlotMap, check_shard, is_integer


@dataclass(frozen=True, slots=True)
class Move:
    """One slot changes its owner from shard `source` to shard `target`."""

    slot: int
    source: int
    target: int


def plan(
    slots: SlotMap, shards: Collection[int], weights: Mapping[int, int] | None = None
) -> tuple[Move, ...]:
    """Return the fewest moves after which the slots are balanced over `shards`.

    Balanced means: each shard owns its exact share by weight, rounded down or up. Where rounding
    leaves a choice, the shards that already own the slot in question keep it. Equal arguments give
    equal plans. A shard gives away its last slots, and a target takes them in runs.

    Args:
        slots: the map as it is.
        shards: the shards that shall own slots; all others lose theirs.
        weights: share of each shard, 0 or a positive integer; 1 where absent.

    Raises:
        InvalidArgumentError: no shard, an invalid shard or weight, or all weights are 0.
    """
    targets = _targets(slots.counts(), _weights(shards, weights or {}))
    owned: dict[int, list[int]] = {}
    for slot, shard in enumerate(slots.owners):
        owned.setdefault(shard, []).append(slot)
    surplus = [
        (slot, shard) for shard in sorted(owned) for slot in owned[shard][targets.get(shard, 0) :]
    ]
    takers = [
        shard
        for shard in sorted(targets)
        for _ in range(targets[shard] - len(owned.get(shard, ())))
    ]
    return tuple(
        Move(slot, source, target) for (slot, source), target in zip(surplus, takers, strict=True)
    )


def apply(slots: SlotMap, moves: Iterable[Move]) -> SlotMap:
    """Return `slots` after `moves`, in order.

    Raises:
        InvalidArgumentError: a move's slot does not belong to its source.
    """
    owners = list(slots.owners)
    for index, move in enumerate(moves):
        if not 0 <= move.slot < limits.SLOTS or owners[move.slot] != move.source:
            raise InvalidArgumentError(
                f"slot {move.slot} does not belong to shard {move.source}",
                field=f"moves[{index}].source",
                limit="the present owner of the slot",
            )
        owners[move.slot] = move.target
    return SlotMap(tuple(owners))


def _weights(shards: Collection[int], weights: Mapping[int, int]) -> dict[int, int]:
    if not shards:
        raise InvalidArgumentError("there are no shards", field="shards", limit="at least 1")
    for shard in shards:
        check_shard(shard, "shards")
    for shard, weight in weights.items():
        if shard not in shards:
            raise InvalidArgumentError(
                f"shard {shard} has a weight and is not planned for",
                field="weights",
                limit="shards of the plan",
            )
        if not is_integer(weight) or weight < 0:
            raise InvalidArgumentError(
                f"shard {shard} has the weight {shown(weight)}",
                field="weights",
                limit="0 or a positive integer",
            )
    full = {shard: weights.get(shard, 1) for shard in sorted(shards)}
    if not any(full.values()):
        raise InvalidArgumentError("all weights are 0", field="weights", limit="one above 0")
    return full


def _targets(counts: Mapping[int, int], weights: Mapping[int, int]) -> dict[int, int]:
    """Return how many slots each shard shall own: its share, rounded so that least must move."""
    total = sum(weights.values())
    floors = {shard: limits.SLOTS * weight // total for shard, weight in weights.items()}
    remainders = {shard: limits.SLOTS * weight % total for shard, weight in weights.items()}
    # Rounding up is free for a shard that owns more than its floor: the slot need not move.
    order = sorted(
        (shard for shard in weights if remainders[shard]),
        key=lambda s: (counts.get(s, 0) <= floors[s], -remainders[s], s),
    )
    for shard in order[: limits.SLOTS - sum(floors.values())]:
        floors[shard] += 1
    return floors
