"""plan() moves the fewest slots that restore balance: compared with an exhaustive search."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError
from kvorum.placement import Move, SlotMap, SlotRun, apply, plan

SHARDS = st.sets(st.integers(0, 9), min_size=1, max_size=7)


@st.composite
def slot_maps(draw: st.DrawFn) -> SlotMap:
    cuts = sorted(draw(st.sets(st.integers(1, limits.SLOTS - 1), max_size=8)))
    edges = [0, *cuts, limits.SLOTS]
    return SlotMap.from_runs(
        SlotRun(end - start, draw(st.integers(0, 9))) for start, end in pairwise(edges)
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[SlotMap, set[int], dict[int, int]]:
    shards = draw(SHARDS)
    weights = draw(st.dictionaries(st.sampled_from(sorted(shards)), st.integers(0, 20)))
    if not any(weights.get(shard, 1) for shard in shards):
        weights[min(shards)] = 1
    return draw(slot_maps()), shards, weights


def least(slots: SlotMap, shards: set[int], weights: dict[int, int]) -> int:
    """Sum of shortfalls, the least over every way to round the exact shares."""
    total = sum(weights.get(shard, 1) for shard in shards)
    share = {shard: Fraction(limits.SLOTS * weights.get(shard, 1), total) for shard in shards}
    broken = [shard for shard in sorted(shards) if share[shard].denominator > 1]
    spare = limits.SLOTS - sum(int(value) for value in share.values())
    have = slots.counts()
    return min(
        sum(max(0, int(share[s]) + (s in up) - have.get(s, 0)) for s in shards)
        for up in combinations(broken, spare)
    )


@settings(max_examples=40)
@given(problems())
def test_a_plan_is_as_short_as_can_be_and_ends_balanced(
    problem: tuple[SlotMap, set[int], dict[int, int]],
) -> None:
    slots, shards, weights = problem
    moves = plan(slots, shards, weights)
    assert len(moves) == least(slots, shards, weights)
    assert len({move.slot for move in moves}) == len(moves)
    assert all(move.source != move.target for move in moves)

    counts = apply(slots, moves).counts()
    assert set(counts) <= shards
    total = sum(weights.get(shard, 1) for shard in shards)
    for shard in shards:
        exact = Fraction(limits.SLOTS * weights.get(shard, 1), total)
        assert abs(counts.get(shard, 0) - exact) < 1


@settings(max_examples=40)
@given(problems())
def test_a_plan_is_deterministic_and_then_there_is_nothing_left_to_do(
    problem: tuple[SlotMap, set[int], dict[int, int]],
) -> None:
    slots, shards, weights = problem
    moves = plan(slots, shards, weights)
    assert plan(slots, sorted(shards, reverse=True), weights) == moves
    assert plan(apply(slots, moves), shards, weights) == ()


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(1, 6))
def test_adding_and_removing_shards_returns_balanced_and_moves_only_what_it_must(
    before: int, added: int
) -> None:
    slots = SlotMap.even(before)
    grow = plan(slots, range(before + added))
    grown = apply(slots, grow)
    assert {move.target for move in grow} == set(range(before, before + added))

    shrink = plan(grown, range(before))
    assert {move.source for move in shrink} == set(range(before, before + added))
    assert len(shrink) == sum(grown.counts()[s] for s in range(before, before + added))
    counts = apply(grown, shrink).counts()
    assert sorted(counts) == list(range(before))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_growing_from_two_to_three_shards_takes_the_tails_in_runs() -> None:
    moved = apply(SlotMap.even(2), plan(SlotMap.even(2), range(3)))
    assert moved.runs() == (
        SlotRun(5462, 0),
        SlotRun(2730, 2),
        SlotRun(5461, 1),
        SlotRun(2731, 2),
    )


def test_a_weight_of_zero_empties_a_shard() -> None:
    slots = apply(SlotMap.even(3), plan(SlotMap.even(3), range(3), {1: 0}))
    assert slots.counts() == {0: 8192, 2: 8192}


@pytest.mark.parametrize(
    ("shards", "weights", "field"),
    [
        ((), None, "shards"),
        ((0, -1), None, "shards"),
        ((0, limits.SHARDS_MAX), None, "shards"),
        ((0, 1), {2: 1}, "weights"),
        ((0, 1), {0: -1}, "weights"),
        ((0, 1), {0: True}, "weights"),
        ((0, 1), {0: 0.5}, "weights"),
        ((0, 1), {0: 0, 1: 0}, "weights"),
    ],
)
def test_a_plan_refuses_what_it_cannot_weigh(
    shards: tuple[int, ...], weights: dict[int, int] | None, field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        plan(SlotMap.even(2), shards, weights)
    assert caught.value.field == field
    assert caught.value.limit


@pytest.mark.parametrize(
    "move", [Move(0, 1, 0), Move(limits.SLOTS, 0, 1), Move(-1, 1, 0), Move(16_383, 0, 1)]
)
def test_apply_refuses_a_move_from_a_map_that_is_another(move: Move) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        apply(SlotMap.even(2), [move])
    assert caught.value.field == "moves[0].source"


def test_apply_follows_moves_in_order() -> None:
    moved = apply(SlotMap.even(2), [Move(0, 0, 5), Move(0, 5, 1)])
    assert moved.owner(0) == 1
