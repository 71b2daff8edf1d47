"""Results and counters: what they say adds up."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from kvorum.client.results import (
    FetchOutcome,
    Hit,
    LocatedBlock,
    MissReason,
    NodeLease,
    StoredBlock,
    StoreOutcome,
    StoreResult,
)
from kvorum.client.stats import ClientStats
from kvorum.core.errors import ArenaFullError, ErrorCode, QuotaError
from kvorum.v1 import cache_pb2, common_pb2


def located(index: int) -> LocatedBlock:
    return LocatedBlock(index, bytes(64), 3, 9, 10, 1, ("n-a-0", "n-b-0"))


def test_numbers_equal_those_on_the_wire() -> None:
    wire = common_pb2.MissReason.items()
    assert {(f"MISS_REASON_{r.name}", r.value) for r in MissReason} == {
        (name, number) for name, number in wire if number
    }
    outcomes = cache_pb2.PutOutcome.items()
    assert {(f"PUT_OUTCOME_{o.name}", o.value) for o in StoreOutcome} == {
        (name, number) for name, number in outcomes if number
    }


def test_a_hit_can_be_sent_to_another_process() -> None:
    hit = Hit(32, (located(0), located(1)), None, 5.0, "n", b"d", (NodeLease("n-a-0", 1, 2, 3),))
    assert pickle.loads(pickle.dumps(hit)) == hit  # noqa: S301  # our own bytes
    assert hit
    assert not Hit(0)


def test_a_store_adds_up_and_lists_an_error_once() -> None:
    full = ArenaFullError("full")
    blocks = (
        StoredBlock(0, StoreOutcome.STORED, zones=("b",)),
        StoredBlock(1, StoreOutcome.ALREADY_STORED, zones=("a",)),
        StoredBlock(2, StoreOutcome.STAGED),
        StoredBlock(3, StoreOutcome.REFUSED, full),
        StoredBlock(4, StoreOutcome.REFUSED, ArenaFullError("full")),
        StoredBlock(5, StoreOutcome.REFUSED, QuotaError("full")),
    )
    result = StoreResult(blocks)
    assert not result
    assert (result.stored, result.already_stored, result.staged, result.refused) == (1, 1, 1, 3)
    assert [error.code for error in result.errors] == [ErrorCode.ARENA_FULL, ErrorCode.QUOTA]
    assert result.zones == ("a", "b")
    assert StoreResult(blocks[:3])


REASONS = st.none() | st.sampled_from(MissReason)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), REASONS)))
def test_hits_and_misses_are_all_lookups(lookups: list[tuple[int, int, MissReason | None]]) -> None:
    stats = ClientStats()
    for blocks, held, reason in lookups:
        found = min(blocks, held)
        why = (reason or MissReason.TIMEOUT) if found < blocks else None
        hit = Hit(found * 16, tuple(map(located, range(found))), why)
        stats.count_lookup(hit, blocks * 16 + 3, blocks)
        if found:
            stats.count_fetch(found, FetchOutcome(found // 2, why or MissReason.TIMEOUT, {"a": 7}))
    assert stats.lookups == len(lookups) == stats.hits + sum(stats.misses.values())
    assert stats.lookup_blocks == stats.found_blocks + sum(stats.missing_blocks.values())
    assert stats.fetch_blocks == stats.fetched_blocks + sum(stats.unfetched_blocks.values())
    assert stats.fetched_bytes_by_zone["a"] == 7 * stats.fetches
    assert stats.hit_tokens == 16 * stats.found_blocks


def test_a_snapshot_does_not_change_any_more() -> None:
    stats = ClientStats()
    before = stats.snapshot()
    stats.count_lookup(Hit(0, reason=MissReason.EVICTED), 16, 1)
    assert before.lookups == 0
    assert before.misses == {}
    assert stats.misses == {"EVICTED": 1}
