"""FetchPlan: a block is asked of the nearest replica that may deliver it, until none is left."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.client.fetchplan import FetchPlan
from kvorum.client.results import MissReason

NEVER = float("inf")


def plan(*candidates: str, attempts: int = 3, down: str = "") -> FetchPlan:
    """Return a plan of blocks whose replicas are named by one letter each."""
    return FetchPlan(candidates, attempts, lambda node: node not in down)


def ask(made: FetchPlan, now: float = 0.0) -> dict[str, list[int]]:
    """Do what the plan says, as a fetch would."""
    asked = made.assign(now)
    for node, positions in asked.items():
        made.started(node, positions)
    return asked


def finish(made: FetchPlan, positions: Sequence[int], outcome: MissReason | bool) -> None:
    for position in positions:
        made.done(position, None, outcome)


def test_blocks_are_grouped_by_their_nearest_replica() -> None:
    made = plan("ab", "ba", "ab")
    assert ask(made) == {"a": [0, 2], "b": [1]}
    assert ask(made) == {}, "they are under way"
    assert not made.settled()
    finish(made, [0, 1, 2], outcome=True)
    assert made.settled()
    assert made.prefix() == (3, None)


def test_a_miss_is_asked_of_the_next_replica() -> None:
    made = plan("ab", "ab")
    ask(made)
    finish(made, [0], outcome=True)
    finish(made, [1], MissReason.EVICTED)
    assert ask(made) == {"b": [1]}
    finish(made, [1], MissReason.CHECKSUM)
    assert ask(made) == {}
    assert made.settled()
    assert made.prefix() == (1, MissReason.CHECKSUM)


def test_nothing_is_asked_for_behind_a_hopeless_block() -> None:
    made = plan("a", "ab")
    ask(made)
    finish(made, [0, 1], MissReason.EVICTED)
    assert ask(made) == {}
    assert made.settled()
    assert made.prefix() == (0, MissReason.EVICTED)


def test_blocks_before_a_hopeless_one_are_waited_for() -> None:
    made = plan("a", "a", "a")
    ask(made)
    finish(made, [1], MissReason.EVICTED)
    assert not made.settled()
    finish(made, [0], outcome=True)
    assert made.settled()
    assert made.prefix() == (1, MissReason.EVICTED)


def test_nodes_that_are_down_are_passed_over() -> None:
    made = plan("ab", "a", down="a")
    assert ask(made) == {"b": [0]}
    finish(made, [0], outcome=True)
    assert made.settled()
    assert made.prefix() == (1, MissReason.NODE_DOWN)


def test_a_block_under_way_at_the_end_was_too_slow() -> None:
    made = plan("a")
    ask(made)
    assert made.prefix() == (0, MissReason.TIMEOUT)


def test_one_answer_writes_at_a_time() -> None:
    made = plan("ab")
    ask(made)
    made.started("b", [0])
    first, second = object(), object()
    assert made.claim(0, first)
    assert not made.claim(0, second)
    made.done(0, second, False)
    assert not made.claim(0, second), "what the second says does not free the first's claim"
    made.done(0, first, MissReason.CHECKSUM)
    assert made.claim(0, second)


def test_what_arrived_is_never_written_again() -> None:
    made = plan("ab")
    ask(made)
    finish(made, [0], outcome=True)
    assert not made.claim(0, object())


def test_a_hedge_goes_to_the_next_replica_and_uses_it_up() -> None:
    made = plan("abc", "a", "bc")
    ask(made)
    assert made.hedge([0, 1]) == {"b": [0]}
    made.started("b", [0])
    assert made.hedge([0]) == {"c": [0]}
    finish(made, [0], MissReason.EVICTED)
    finish(made, [0], MissReason.EVICTED)
    assert ask(made) == {"c": [0]}


def test_a_busy_node_is_asked_again_after_a_while() -> None:
    made = plan("a")
    ask(made, now=0.0)
    finish(made, [0], MissReason.TIMEOUT)
    made.postpone("a", [0], until=5.0)
    assert ask(made, now=1.0) == {}
    assert made.due() == 5.0
    assert not made.settled()
    assert ask(made, now=5.0) == {"a": [0]}
    assert made.due() == NEVER


def test_a_busy_node_does_not_hold_the_next_replica_up() -> None:
    made = plan("ab")
    ask(made)
    finish(made, [0], MissReason.TIMEOUT)
    made.postpone("a", [0], until=5.0)
    assert ask(made, now=1.0) == {"b": [0]}


def test_a_block_that_waits_does_not_hold_the_ones_behind_it_up() -> None:
    made = plan("a", "bc")
    ask(made)
    finish(made, [0, 1], MissReason.TIMEOUT)
    made.postpone("a", [0], until=5.0)
    assert ask(made, now=1.0) == {"c": [1]}


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_attempts_are_bounded(attempts: int) -> None:
    made = plan("abc", attempts=attempts)
    asked = 0
    while batch := ask(made, now=100.0):
        asked += 1
        finish(made, [0], MissReason.TIMEOUT)
        made.postpone(next(iter(batch)), [0], until=0.0)
    assert asked == attempts
    assert made.settled()


def test_what_an_earlier_run_brought_is_not_asked_for_again() -> None:
    made = plan("a", "a", "a")
    made.skip({0, 2})
    assert ask(made) == {"a": [1]}
    finish(made, [1], outcome=True)
    assert made.prefix() == (3, None)
    assert made.received() == {0, 1, 2}


@given(st.data())
def test_it_always_ends_and_delivers_what_somebody_has(data: st.DataObject) -> None:
    """Whatever nodes hold, each block of the prefix that one of them has is delivered."""
    count = data.draw(st.integers(1, 6))
    orders = [data.draw(st.permutations("abc")) for _ in range(count)]
    holds = {node: data.draw(st.sets(st.integers(0, count - 1))) for node in "abc"}
    down = data.draw(st.sampled_from(["", "a", "bc"]))
    made = FetchPlan(orders, 3, lambda node: node not in down)
    for _ in range(3 * count + 1):
        asked = ask(made)
        if made.settled():
            break
        for node, positions in asked.items():
            for position in positions:
                found = position in holds[node]
                made.done(position, None, True if found else MissReason.EVICTED)
    assert made.settled()
    had = [any(at in holds[node] for node in "abc" if node not in down) for at in range(count)]
    assert made.prefix()[0] == (had.index(False) if False in had else count)
