"""Membership: who is up, down or draining, and which life of each it is."""

from __future__ import annotations

import pytest

from kvorum.core.errors import IncarnationError
from kvorum.node.clock import Clock
from kvorum.node.membership import Membership, MemberState
from kvorum.placement import ClusterFile
from kvorum.v1 import cluster_pb2
from tests.unit.node.stand import Time

FILE = ClusterFile.local(2, 1, [7000, 7001], bytes(32), "p" * 16, "a" * 16)
PEER = "kvorum-b-0"


def made() -> tuple[Membership, Time]:
    time = Time()
    return Membership(FILE.map, "kvorum-a-0", Clock(time), 3_000), time


def test_numbers_are_those_of_the_wire() -> None:
    wire = {f"MEMBER_STATE_{state.name}": state.value for state in MemberState if state}
    wire["MEMBER_STATE_UNSPECIFIED"] = MemberState.UNKNOWN.value
    assert wire == dict(cluster_pb2.MemberState.items())


def test_only_the_others_are_known() -> None:
    members, _ = made()
    assert members.knows(PEER)
    assert not members.knows("kvorum-a-0")
    assert not members.knows("nobody")


def test_a_member_is_unknown_then_up_then_down_then_up_again() -> None:
    members, time = made()
    assert members.state(PEER) is MemberState.UNKNOWN
    members.heard(PEER, 7, draining=False)
    assert members.state(PEER) is MemberState.UP
    time.pass_ms(3_000)
    assert members.state(PEER) is MemberState.UP
    time.pass_ms(1)
    assert members.state(PEER) is MemberState.DOWN
    members.heard(PEER, 7, draining=True)
    assert members.state(PEER) is MemberState.DRAINING


def test_a_member_that_never_answers_goes_down() -> None:
    members, time = made()
    time.pass_ms(3_001)
    assert members.state(PEER) is MemberState.DOWN


def test_a_member_that_calls_and_does_not_answer_goes_down() -> None:
    members, time = made()
    members.heard(PEER, 7, draining=False)
    time.pass_ms(3_001)
    assert not members.called(PEER, 7, draining=False)
    assert members.state(PEER) is MemberState.DOWN
    assert members.called(PEER, 9, draining=False)
    assert members.incarnation(PEER) == 9
    with pytest.raises(IncarnationError):
        members.called(PEER, 7, draining=False)


def test_a_new_life_is_news_and_an_old_one_is_a_ghost() -> None:
    members, _ = made()
    assert members.heard(PEER, 7, draining=False)
    assert not members.heard(PEER, 7, draining=False)
    assert members.heard(PEER, 9, draining=False)
    with pytest.raises(IncarnationError) as caught:
        members.heard(PEER, 7, draining=True)
    assert caught.value.limit == "at least 9"
    assert members.incarnation(PEER) == 9
    assert members.state(PEER) is MemberState.UP
