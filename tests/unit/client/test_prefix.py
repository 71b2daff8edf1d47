"""PrefixMerge: what several nodes know adds up to the longest prefix, in any order of answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.client.prefix import PrefixMerge, Seen, Span
from kvorum.client.results import MissReason

HERE = Seen(None, group=1, size_bytes=10, parts=1)
GONE = Seen(MissReason.NEVER_STORED)


def seen(text: str) -> list[Seen | None]:
    """Return an answer: `1` present, `2` present as another group, `.` missing, `-` not asked."""
    other = Seen(None, group=2, size_bytes=10, parts=1)
    return [{"1": HERE, "2": other, ".": GONE, "-": None}[letter] for letter in text]


def merge(*spans: tuple[int, str]) -> PrefixMerge:
    """Return a merge of spans, each of so many blocks and of nodes named by one letter."""
    made, begin = [], 0
    for size, nodes in spans:
        made.append(Span(begin, begin + size, tuple(nodes)))
        begin += size
    return PrefixMerge(made)


def test_one_node_that_has_all_is_enough() -> None:
    state = merge((3, "ab"), (2, "ab"))
    assert state.first() == ["a"]
    state.answer("a", seen("11111"))
    assert state.complete
    assert state.reason() is None
    assert state.wanted({"a"}) == []
    assert [found.nodes for found in state.found] == [("a",)] * 5


def test_a_gap_in_one_zone_is_filled_by_another() -> None:
    state = merge((4, "abc"))
    state.answer("a", seen("11.1"))
    assert len(state.found) == 2
    assert state.short()
    assert state.wanted({"a"}) == ["b", "c"]
    assert state.hopes({"b"}) == ["b"]
    state.answer("b", seen("..1."))
    assert len(state.found) == 4
    assert state.found[2].nodes == ("b",)
    assert state.found[3].nodes == ("a",)


def test_nobody_is_asked_about_what_cannot_lengthen_the_prefix() -> None:
    state = merge((2, "ab"), (2, "cd"))
    state.answer("a", seen(".1--"))
    state.answer("b", seen("..--"))
    state.answer("c", seen("--.."))
    assert state.wanted({"a", "b", "c"}) == []
    assert state.hopes({"d"}) == []


def test_an_answer_about_a_later_segment_waits_for_the_earlier_one() -> None:
    state = merge((2, "ab"), (2, "cd"))
    assert state.first() == ["a", "c"]
    state.answer("c", seen("--11"))
    assert len(state.found) == 0
    assert not state.short(), "the first segment's nodes have not spoken"
    state.answer("a", seen("11--"))
    assert len(state.found) == 4


def test_the_nearest_holder_decides_the_group_and_others_of_that_group_are_kept() -> None:
    state = merge((2, "abc"))
    state.answer("c", seen("12"))
    state.answer("b", seen("21"))
    state.answer("a", seen("2."))
    assert state.found[0].seen.group == 1, "the first answer counts: nothing found is taken back"
    again = merge((2, "abc"))
    again.answer("a", seen(".."))
    again.fail("b", MissReason.NODE_DOWN)
    again.answer("c", seen("12"))
    assert [found.nodes for found in again.found] == [("c",), ("c",)]


def test_a_node_that_holds_another_group_is_not_among_the_holders() -> None:
    state = merge((1, "ab"), (1, "abc"))
    state.answer("b", seen(".1"))
    state.answer("c", seen("-2"))
    state.answer("a", seen("1."))
    assert [found.nodes for found in state.found] == [("a",), ("b",)]


def test_nodes_that_failed_are_not_asked_again() -> None:
    state = merge((1, "abc"))
    state.fail("a", MissReason.NODE_DOWN)
    assert state.first() == ["b"]
    assert state.wanted(set()) == ["b", "c"]


def test_a_node_that_is_no_replica_counts_if_it_has_the_block() -> None:
    state = merge((1, "ab"), (1, "c"))
    state.answer("c", seen("11"))
    assert state.complete


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([MissReason.NEVER_STORED, MissReason.EVICTED], MissReason.EVICTED),
        ([MissReason.NEVER_STORED, MissReason.INVALIDATED], MissReason.INVALIDATED),
        ([MissReason.FINGERPRINT, MissReason.FINGERPRINT], MissReason.FINGERPRINT),
    ],
)
def test_the_most_telling_reason_of_the_replicas_holds(
    reasons: list[MissReason], expected: MissReason
) -> None:
    state = merge((1, "ab"))
    for node, reason in zip("ab", reasons, strict=True):
        state.answer(node, [Seen(reason)])
    assert state.reason() is expected


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (MissReason.TIMEOUT, MissReason.TIMEOUT),
        (MissReason.NODE_DOWN, MissReason.NEVER_STORED),
        (MissReason.DENIED, MissReason.DENIED),
    ],
)
def test_a_replica_that_was_late_may_have_known_better(
    failure: MissReason, expected: MissReason
) -> None:
    state = merge((1, "ab"))
    state.answer("a", [GONE])
    state.fail("b", failure)
    assert state.reason() is expected


def test_when_every_replica_is_down_the_reason_says_so() -> None:
    state = merge((1, "ab"))
    state.fail("a", MissReason.NODE_DOWN)
    state.fail("b", MissReason.NODE_DOWN)
    assert state.reason() is MissReason.NODE_DOWN


@given(st.data())
def test_the_prefix_is_as_long_as_the_union_of_what_is_known(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    count = sum(sizes)
    nodes = "abcd"
    holds = {
        node: data.draw(st.lists(st.booleans(), min_size=count, max_size=count)) for node in nodes
    }
    state = merge(*((size, nodes) for size in sizes))
    for node in data.draw(st.permutations(nodes)):
        state.answer(node, [HERE if held else GONE for held in holds[node]])
    union = [any(holds[node][at] for node in nodes) for at in range(count)]
    expected = union.index(False) if False in union else count
    assert len(state.found) == expected
    for at, found in enumerate(state.found):
        assert found.nodes
        assert all(holds[node][at] for node in found.nodes)
