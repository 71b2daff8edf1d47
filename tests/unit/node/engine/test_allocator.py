"""TLSF against a naive model: extents never overlap, nothing leaks, free space merges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.errors import InternalError, InvalidArgumentError
from kvorum.node.engine.allocator import GRANULE_BYTES, Allocator, granule_bytes

# Sizes in bytes: below a granule, at its edges, odd ones, and large ones.
SIZES = st.one_of(
    st.integers(1, 3 * GRANULE_BYTES),
    st.integers(1, 80).map(lambda granules: granules * GRANULE_BYTES),
    st.integers(1, 200 * GRANULE_BYTES),
)


def check(allocator: Allocator, live: dict[int, int]) -> None:
    """Compare the allocator's extents with those that are known to be handed out."""
    position, was_free, free = 0, False, []
    for offset, size, is_free in allocator.extents():
        assert offset == position, "extents cover the arena without gap or overlap"
        assert size > 0
        assert size % GRANULE_BYTES == 0
        assert not (is_free and was_free), "two free neighbours did not merge"
        if is_free:
            free.append(size)
        else:
            assert size == granule_bytes(live[offset])
        position, was_free = offset + size, is_free
    assert position == allocator.capacity_bytes
    assert allocator.used_bytes == sum(granule_bytes(size) for size in live.values())
    assert allocator.free_bytes == sum(free)
    assert allocator.largest_free_bytes == max(free, default=0)


@given(
    granules=st.integers(1, 300),
    steps=st.lists(st.tuples(SIZES, st.integers(0, 1_000), st.booleans()), max_size=120),
)
def test_random_workloads_agree_with_a_naive_model(
    granules: int, steps: list[tuple[int, int, bool]]
) -> None:
    allocator = Allocator(granules * GRANULE_BYTES)
    live: dict[int, int] = {}
    for size, pick, is_free in steps:
        if is_free and live:
            offset = sorted(live)[pick % len(live)]
            assert allocator.free(offset) == granule_bytes(live.pop(offset))
        else:
            offset_or_none = allocator.allocate(size)
            if offset_or_none is None:
                # A class holds sizes up to 1/32 apart: only such a near fit may be missed.
                need = granule_bytes(size)
                assert allocator.largest_free_bytes < need + need // 32 + GRANULE_BYTES
            else:
                assert offset_or_none not in live
                live[offset_or_none] = size
        check(allocator, live)
    for offset in sorted(live, key=lambda one: one * 7919 % 1_000_003):
        allocator.free(offset)
    check(allocator, {})
    assert list(allocator.extents()) == [(0, allocator.capacity_bytes, True)]


@given(st.integers(1, 5_000))
def test_the_whole_arena_can_be_taken_at_once(granules: int) -> None:
    allocator = Allocator(granules * GRANULE_BYTES)
    assert allocator.allocate(allocator.capacity_bytes) == 0
    assert allocator.allocate(1) is None
    assert allocator.largest_free_bytes == 0


@given(st.integers(1, 64), st.integers(1, 64))
def test_equal_parts_fill_the_arena_to_the_last_granule(count: int, granules: int) -> None:
    size = granules * GRANULE_BYTES
    allocator = Allocator(count * size)
    offsets = [allocator.allocate(size) for _ in range(count)]
    assert sorted(one for one in offsets if one is not None) == [n * size for n in range(count)]
    assert allocator.free_bytes == 0


def test_an_exact_fit_is_found_behind_a_smaller_extent_of_its_class() -> None:
    """A class holds two sizes here, 64 and 65 granules; the smaller was freed last."""
    allocator = Allocator(131 * GRANULE_BYTES)
    sizes = [65, 1, 64, 1]
    exact, _, smaller, _ = [allocator.allocate(size * GRANULE_BYTES) for size in sizes]
    assert exact is not None
    assert smaller is not None
    allocator.free(exact)
    allocator.free(smaller)
    assert allocator.allocate(65 * GRANULE_BYTES) == exact


def test_neighbours_skip_free_space() -> None:
    allocator = Allocator(8 * GRANULE_BYTES)
    first, second, third = (allocator.allocate(GRANULE_BYTES) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert allocator.neighbours(second) == (first, third)
    allocator.free(second)
    assert allocator.neighbours(first) == (None, third)
    assert allocator.neighbours(third) == (first, None)


def test_what_was_not_handed_out_cannot_come_back() -> None:
    allocator = Allocator(4 * GRANULE_BYTES)
    offset = allocator.allocate(1)
    assert offset is not None
    allocator.free(offset)
    with pytest.raises(InternalError):
        allocator.free(offset)
    with pytest.raises(InternalError):
        allocator.allocate(0)


@pytest.mark.parametrize("capacity_bytes", [0, -GRANULE_BYTES, GRANULE_BYTES + 1])
def test_a_capacity_that_is_no_multiple_is_refused(capacity_bytes: int) -> None:
    with pytest.raises(InvalidArgumentError):
        Allocator(capacity_bytes)
