"""View: the cluster map as clients use it, and what is refused of what nodes say."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from kvorum.client.nodes import NodeState
from kvorum.client.view import (
    View,
    check_namespace,
    choose_map,
    fingerprint_message,
    parse_map,
    replicas_kept,
    to_topology,
)
from kvorum.core.errors import InternalError, NamespaceConflictError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import chain
from kvorum.v1 import cluster_pb2, common_pb2, namespace_pb2
from tests.unit.client.samples import build, build_map

SALT = bytes(32)


def topology() -> cluster_pb2.GetTopologyResponse:
    cluster_map = build_map()
    return cluster_pb2.GetTopologyResponse(
        answerer=common_pb2.Answerer(node="n-a-0", zone="a", incarnation=5),
        cluster=cluster_map.cluster,
        epoch=cluster_map.epoch,
        map_digest=bytes(32),
        members=[
            cluster_pb2.Member(**asdict(member), state=cluster_pb2.MEMBER_STATE_UP, incarnation=5)
            for member in cluster_map.members
        ],
        slots=[
            cluster_pb2.SlotRun(count=run.count, shard=run.shard)
            for run in cluster_map.slots.runs()
        ],
    )


def view(zone: str | None, replicas: int = 2) -> View:
    fingerprint = build(block_tokens=1024)
    return View(
        map=build_map(),
        map_digest=bytes(32),
        zone=zone,
        namespace="n",
        fingerprint=fingerprint,
        fingerprint_digest=fingerprint.digest(),
        salt=SALT,
        replicas=replicas,
    )


def test_a_map_survives_the_way() -> None:
    assert parse_map(topology()) == build_map()
    made = to_topology(topology())
    assert made.zones == ("a", "b", "c")
    assert sum(made.slots_by_shard.values()) == 16_384
    assert made.answered_by == "n-a-0"
    assert {node.state for node in made.nodes} == {NodeState.UP}


def test_what_is_no_map_is_refused() -> None:
    for spoil in (
        lambda answer: answer.ClearField("map_digest"),
        lambda answer: answer.ClearField("members"),
        lambda answer: answer.slots.pop(),
        lambda answer: setattr(answer.members[0], "zone", answer.members[2].zone),
        lambda answer: setattr(answer.members[0], "address", "nowhere"),
    ):
        answer = topology()
        spoil(answer)
        with pytest.raises(InternalError):
            parse_map(answer)


def test_the_map_on_which_most_nodes_agree_counts() -> None:
    ours, strange = topology(), topology()
    strange.map_digest, strange.epoch = b"s" * 32, 9
    assert choose_map([strange, ours, ours]) == ours
    assert choose_map([ours, strange]) == strange, "of two, the later one"
    assert choose_map([ours]) == ours


def test_segments_cover_the_blocks_and_start_where_slots_change() -> None:
    seen = view("b")
    keys = chain(seen.fingerprint, SALT, range(7 * 1024 + 5))
    segments = seen.segments(keys)
    assert [(s.begin, s.end) for s in segments] == [(0, 2), (2, 4), (4, 6), (6, 7)]
    for segment in segments:
        assert {keys.slot(at) for at in range(segment.begin, segment.end)} == {segment.slot}
        assert segment.replicas == seen.replicas_of(segment.slot)


def test_a_chain_of_no_block_has_no_segment() -> None:
    seen = view("b")
    assert seen.segments(chain(seen.fingerprint, SALT, [1, 2, 3])) == ()


@pytest.mark.parametrize("zone", ["a", "b", "c", None])
def test_replicas_are_the_slots_own_with_the_nearest_first(zone: str | None) -> None:
    seen = view(zone)
    for slot in range(0, 16_384, 97):
        replicas = seen.replicas_of(slot)
        assert set(replicas) == set(seen.map.replicas(slot, 2))
        if zone in {member.zone for member in replicas}:
            assert replicas[0].zone == zone
        else:
            assert replicas == seen.map.replicas(slot, 2)


def test_parts_of_all_ranks_are_stored_in_one_order_whatever_their_zones() -> None:
    ranks = [replace(view(zone), fingerprint=build(tp_size=2)) for zone in "abc"]
    for slot in range(0, 16_384, 97):
        assert len({rank.store_order(slot) for rank in ranks}) == 1
    assert view("b").store_order(5) == view("b").replicas_of(5)


def test_every_fingerprint_field_must_be_equal() -> None:
    """Change one field after the other: each is a conflict that names it."""
    mine = build()
    other = build(
        model="m2", weights_revision="r2", tokenizer="t2", adapter="a2", kv_dtype="bfloat16",
        layers=8, kv_heads=4, head_size=16, rope="r", tp_size=2, pp_size=2, block_tokens=32,
        codec_class="int8", layout="opaque", cp_size=2,
    )  # fmt: skip
    for name in Fingerprint.__slots__:
        theirs = fingerprint_message(mine)
        setattr(theirs, name, getattr(other, name))
        namespace = namespace_pb2.Namespace(name="n", fingerprint=theirs, key_salt=SALT)
        with pytest.raises(NamespaceConflictError) as caught:
            check_namespace(namespace, mine)
        assert caught.value.field == f"fingerprint.{name}"


def test_a_namespace_without_its_salt_is_refused() -> None:
    mine = build()
    namespace = namespace_pb2.Namespace(name="n", fingerprint=fingerprint_message(mine))
    with pytest.raises(InternalError):
        check_namespace(namespace, mine)


@pytest.mark.parametrize(
    ("asked", "zones", "kept"), [(0, "abc", 2), (0, "a", 1), (3, "ab", 2), (1, "abc", 1)]
)
def test_replicas_are_never_more_than_zones(asked: int, zones: str, kept: int) -> None:
    assert replicas_kept(namespace_pb2.NamespacePolicy(replicas=asked), zones) == kept
