"""Namespaces: members end equal whatever the order in which they hear of changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core import limits
from kvorum.core.errors import FingerprintError, NamespaceNotFoundError, TooLargeError
from kvorum.node.engine.events import NamespaceId, NamespaceRecord, Policy
from kvorum.node.engine.namespaces import Namespaces
from tests.unit.node.engine.prompts import fingerprint, record

RECORDS = st.builds(
    lambda revision, replicas, deleted, model: record(
        "chat",
        policy=Policy(replicas),
        revision=revision,
        deleted=deleted,
        model=model,
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from("mn"),
)


@given(st.lists(RECORDS, min_size=1, max_size=6), st.data())
def test_the_order_of_arrival_does_not_matter(
    records: list[NamespaceRecord], data: st.DataObject
) -> None:
    results = set()
    for order in (records, data.draw(st.permutations(records))):
        namespaces = Namespaces()
        for one in order:
            namespaces.apply(one)
        results.add(namespaces.record(NamespaceId("t", "chat")))
    assert len(results) == 1


@given(st.lists(RECORDS, min_size=1, max_size=6))
def test_a_record_is_news_once(records: list[NamespaceRecord]) -> None:
    namespaces = Namespaces()
    for one in records:
        namespaces.apply(one)
    assert all(namespaces.apply(one) == (False, None) for one in records)


def test_a_policy_keeps_the_blocks_and_another_fingerprint_ends_them() -> None:
    namespaces = Namespaces()
    name = NamespaceId("t", "chat")
    namespaces.apply(record("chat"))
    first = namespaces.get(name)
    assert namespaces.apply(record("chat", revision=2, policy=Policy(3))) == (True, None)
    assert namespaces.get(name) is first
    assert first.record.policy.replicas == 3
    assert namespaces.apply(record("chat", revision=3, model="n")) == (True, first)
    assert first.gone
    assert namespaces.get(name) is not first
    assert namespaces.get(name).tag != first.tag


def test_a_deleted_namespace_is_remembered_and_can_come_back() -> None:
    namespaces = Namespaces()
    name = NamespaceId("t", "chat")
    namespaces.apply(record("chat"))
    namespaces.apply(record("chat", revision=2, deleted=True))
    assert namespaces.find(name) is None
    assert namespaces.records() == (record("chat", revision=2, deleted=True),)
    assert namespaces.apply(record("chat", revision=2)) == (False, None)
    assert namespaces.apply(record("chat", revision=3)) == (True, None)
    assert namespaces.records() == (record("chat", revision=3),)


def test_there_is_a_limit_and_room_again_after_a_delete() -> None:
    namespaces = Namespaces()
    for number in range(limits.NAMESPACES_MAX):
        namespaces.apply(record(f"n{number}"))
    with pytest.raises(TooLargeError):
        namespaces.apply(record("more"))
    namespaces.apply(record("n0", revision=2, deleted=True))
    assert namespaces.apply(record("more")) == (True, None)
    assert namespaces.apply(record("n1", revision=2, policy=Policy(3))) == (True, None)


def test_tombstones_of_namespaces_are_bounded() -> None:
    namespaces = Namespaces()
    for number in range(5 * limits.NAMESPACES_MAX):
        namespaces.apply(record(f"n{number}", revision=2, deleted=True))
    assert len(namespaces.records()) == 4 * limits.NAMESPACES_MAX
    assert namespaces.record(NamespaceId("t", "n0")) is None


def test_who_changes_blocks_must_name_the_fingerprint() -> None:
    namespaces = Namespaces()
    namespaces.apply(record("chat"))
    name = NamespaceId("t", "chat")
    assert namespaces.for_writing(name, fingerprint().digest()) is namespaces.get(name)
    with pytest.raises(FingerprintError):
        namespaces.for_writing(name, fingerprint(model="n").digest())
    with pytest.raises(NamespaceNotFoundError):
        namespaces.for_writing(NamespaceId("other", "chat"), fingerprint().digest())
