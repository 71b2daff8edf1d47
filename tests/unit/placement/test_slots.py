"""SlotMap covers every slot exactly once, as owners and as runs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError
from kvorum.placement import SlotMap, SlotRun

VAST = pytest.param(1 << 20_000, id="vast")  # too long for Python to write down in decimal


@st.composite
def slot_maps(draw: st.DrawFn) -> SlotMap:
    """A map of up to 12 runs over up to 6 shards."""
    cuts = sorted(draw(st.sets(st.integers(1, limits.SLOTS - 1), max_size=11)))
    starts = [0, *cuts]
    owners: list[int] = []
    for start, end in zip(starts, [*cuts, limits.SLOTS], strict=True):
        owners += [draw(st.integers(0, 5))] * (end - start)
    return SlotMap(tuple(owners))


@given(slot_maps())
def test_runs_round_trip_and_are_as_few_as_can_be(slots: SlotMap) -> None:
    runs = slots.runs()
    assert SlotMap.from_runs(runs) == slots
    assert all(a.shard != b.shard for a, b in pairwise(runs))


@given(slot_maps())
def test_counts_add_up_and_owner_reads_the_map(slots: SlotMap) -> None:
    assert sum(slots.counts().values()) == limits.SLOTS
    assert [slots.owner(slot) for slot in range(limits.SLOTS)] == list(slots.owners)


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 100, limits.SHARDS_MAX])
def test_even_is_even_to_within_one_slot_in_one_run_a_shard(shards: int) -> None:
    counts = SlotMap.even(shards).counts()
    assert sorted(counts) == list(range(shards))
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(SlotMap.even(shards).runs()) == shards


@pytest.mark.parametrize("shards", [0, -1, limits.SHARDS_MAX + 1, True, 1.0, "2", VAST])
def test_even_refuses_an_impossible_number_of_shards(shards: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SlotMap.even(shards)
    assert (caught.value.field, caught.value.limit) == ("shards", f"1 to {limits.SHARDS_MAX}")


@pytest.mark.parametrize("count", [0, limits.SLOTS - 1, limits.SLOTS + 1])
def test_a_map_has_exactly_all_slots(count: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SlotMap((0,) * count)
    assert (caught.value.field, caught.value.limit) == ("slots", "exactly 16384 slots")


@pytest.mark.parametrize("shard", [-1, limits.SHARDS_MAX, True, 0.0, "0"])
def test_a_map_refuses_what_is_no_shard(shard: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SlotMap((0,) * (limits.SLOTS - 1) + (shard,))
    assert caught.value.field == "slots.shard"


@pytest.mark.parametrize(
    ("runs", "field"),
    [
        ([], "slots"),
        ([(16_383, 0)], "slots"),
        ([(16_383, 0), (2, 1)], "slots[1].count"),
        ([(16_384, 0), (1, 1)], "slots[1].count"),
        ([(0, 0), (16_384, 1)], "slots[0].count"),
        ([(-1, 0), (16_385, 1)], "slots[0].count"),
        ([(2**80, 0)], "slots[0].count"),
        ([(16_384, -1)], "slots[0].shard"),
        ([(16_384, limits.SHARDS_MAX)], "slots[0].shard"),
    ],
)
def test_runs_must_cover_the_slots_exactly(runs: list[tuple[int, int]], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SlotMap.from_runs(SlotRun(*run) for run in runs)
    assert caught.value.field == field
    assert caught.value.limit


@pytest.mark.parametrize("slot", [-1, limits.SLOTS])
def test_there_is_no_other_slot(slot: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SlotMap.even(1).owner(slot)
    assert (caught.value.field, caught.value.limit) == ("slot", "0 to 16383")
