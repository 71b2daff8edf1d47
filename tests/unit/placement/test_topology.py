"""ClusterMap: replicas in distinct zones, homes balanced, contradictions refused, digest exact."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.placement import ClusterMap, Member, SlotMap, apply, plan, split_address


def grid(zones: int, shards: int, slots: SlotMap | None = None) -> ClusterMap:
    """A full cluster, members listed from the last to the first."""
    members = [
        Member(f"n-{z}-{shard}", f"zone-{z}", shard, f"10.0.{z}.{shard % 250 + 1}:7000")
        for z in range(zones)
        for shard in range(shards)
    ]
    return ClusterMap("prod", 1, tuple(reversed(members)), slots or SlotMap.even(shards))


TWO_BY_THREE = grid(3, 2)


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6))
def test_replicas_lie_in_distinct_zones_of_the_owning_shard(
    zones: int, shards: int, count: int
) -> None:
    cluster = grid(zones, shards)
    for slot in range(0, limits.SLOTS, 97):
        replicas = cluster.replicas(slot, count)
        assert len(replicas) == min(count, zones)
        assert len({member.zone for member in replicas}) == len(replicas)
        assert {member.shard for member in replicas} == {cluster.shard_of(slot)}
        assert cluster.replicas(slot, 1) == replicas[:1]


@settings(max_examples=15)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_homes_are_balanced_over_zones_and_stay_so_after_a_plan(
    zones: int, shards: int, added: int
) -> None:
    """Each run of slots puts at most one home more into one zone than into another."""
    slots = SlotMap.even(shards)
    grown = apply(slots, plan(slots, range(shards + added)))
    for layout in (slots, grown):
        cluster = grid(zones, shards + added, layout)
        runs = Counter(run.shard for run in layout.runs())
        homes: Counter[tuple[int, str]] = Counter()
        for slot in range(limits.SLOTS):
            (home,) = cluster.replicas(slot, 1)
            homes[home.shard, home.zone] += 1
        for shard, count in runs.items():
            of_shard = [homes[shard, zone] for zone in cluster.zones]
            assert max(of_shard) - min(of_shard) <= count


def test_home_order_is_the_zones_rotated_by_the_slot() -> None:
    first = [[m.zone for m in TWO_BY_THREE.replicas(slot, 3)] for slot in range(4)]
    assert first == [
        ["zone-0", "zone-1", "zone-2"],
        ["zone-1", "zone-2", "zone-0"],
        ["zone-2", "zone-0", "zone-1"],
        ["zone-0", "zone-1", "zone-2"],
    ]


def test_nearest_puts_the_own_zone_first_and_keeps_the_order_otherwise() -> None:
    members = TWO_BY_THREE.replicas(1, 3)
    zones = [m.zone for m in TWO_BY_THREE.nearest(members, "zone-0")]
    assert zones == ["zone-0", "zone-1", "zone-2"]
    assert TWO_BY_THREE.nearest(members, "elsewhere") == members
    assert TWO_BY_THREE.nearest(members, None) == members


def test_members_are_found_by_name_shard_and_zone() -> None:
    assert TWO_BY_THREE.zones == ("zone-0", "zone-1", "zone-2")
    assert TWO_BY_THREE.shards == (0, 1)
    assert TWO_BY_THREE.member("n-2-1").address == "10.0.2.2:7000"
    assert [m.name for m in TWO_BY_THREE.shard_members(1)] == ["n-0-1", "n-1-1", "n-2-1"]
    assert TWO_BY_THREE.shard_members(2) == ()
    with pytest.raises(InvalidArgumentError) as caught:
        TWO_BY_THREE.member("n-3-1")
    assert caught.value.field == "name"


def test_a_shard_may_have_members_before_it_owns_slots() -> None:
    cluster = grid(3, 3, SlotMap.even(2))
    assert cluster.shards == (0, 1, 2)
    assert {cluster.shard_of(slot) for slot in range(limits.SLOTS)} == {0, 1}


@pytest.mark.parametrize("count", [0, -1])
def test_there_is_at_least_one_replica(count: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        TWO_BY_THREE.replicas(0, count)
    assert caught.value.field == "replicas"


@pytest.mark.parametrize("slot", [-1, limits.SLOTS])
def test_there_is_no_other_slot(slot: int) -> None:
    for ask in (lambda: TWO_BY_THREE.shard_of(slot), lambda: TWO_BY_THREE.replicas(slot, 1)):
        with pytest.raises(InvalidArgumentError) as caught:
            ask()
        assert caught.value.field == "slot"


A0 = Member("a-0", "a", 0, "10.0.0.1:7000")


@pytest.mark.parametrize(
    ("second", "field", "limit"),
    [
        (Member("b-0", "a", 0, "10.0.0.2:7000"), "members[1].zone", "one member of a shard"),
        (Member("a-0", "b", 0, "10.0.0.2:7000"), "members[1].name", "unique"),
        (Member("b-0", "b", 0, "10.0.0.1:7000"), "members[1].address", "unique"),
    ],
)
def test_members_that_contradict_one_another_are_refused(
    second: Member, field: str, limit: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ClusterMap("prod", 1, (A0, second), SlotMap.even(1))
    assert caught.value.field == field
    assert limit in caught.value.limit


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"members": ()}, "members"),
        ({"slots": SlotMap.even(2)}, "slots"),
        ({"cluster": ""}, "cluster.name"),
        ({"cluster": "Prod"}, "cluster.name"),
        ({"epoch": 0}, "cluster.epoch"),
        ({"epoch": limits.EPOCH_MAX + 1}, "cluster.epoch"),
        ({"epoch": True}, "cluster.epoch"),
        ({"epoch": 1.0}, "cluster.epoch"),
    ],
)
def test_an_impossible_map_is_refused(changes: dict[str, object], field: str) -> None:
    whole = {"cluster": "prod", "epoch": 1, "members": (A0,), "slots": SlotMap.even(1)}
    with pytest.raises(InvalidArgumentError) as caught:
        ClusterMap(**(whole | changes))  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.field == field
    assert caught.value.limit


def test_the_number_of_zones_and_members_is_bounded() -> None:
    with pytest.raises(TooLargeError) as caught:
        grid(limits.ZONES_MAX + 1, 1)
    assert caught.value.field == "members.zone"
    many = tuple(
        Member(f"n-{i}", f"zone-{i // 1000}", i % 1000, f"10.0.0.1:{i + 1}")
        for i in range(limits.MEMBERS_MAX + 1)
    )
    with pytest.raises(TooLargeError) as caught:
        ClusterMap("prod", 1, many, SlotMap.even(1))
    assert (caught.value.field, caught.value.limit) == ("members", "4096 members")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "member.name"),
        ({"name": "a" * 129}, "member.name"),
        ({"zone": "zone a"}, "member.zone"),
        ({"zone": None}, "member.zone"),
        ({"shard": -1}, "member.shard"),
        ({"shard": limits.SHARDS_MAX}, "member.shard"),
        ({"shard": "0"}, "member.shard"),
        ({"shard": True}, "member.shard"),
    ],
)
def test_a_malformed_member_is_refused(changes: dict[str, object], field: str) -> None:
    whole = {"name": "a-0", "zone": "a", "shard": 0, "address": "10.0.0.1:7000"}
    with pytest.raises(InvalidArgumentError) as caught:
        Member(**(whole | changes))  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.field == field
    assert caught.value.limit


@pytest.mark.parametrize(
    "address",
    [
        "", "host", "host:", ":7000", "host:0", "host:65536", "host:-1", "ho st:1",
        "host:\N{ARABIC-INDIC DIGIT SEVEN}",
        "::1:7000", "[::1]", "[host]:1", "[1.2.3.4]:1", "unix:/tmp/x", "a" * 251 + ":65535", None,
    ],
)  # fmt: skip
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        split_address(address)
    assert caught.value.field == "member.address"


@pytest.mark.parametrize(
    ("address", "parts", "loopback"),
    [
        ("127.0.0.1:7000", ("127.0.0.1", 7000), True),
        ("127.9.9.9:1", ("127.9.9.9", 1), True),
        ("[::1]:65535", ("::1", 65535), True),
        ("localhost:7000", ("localhost", 7000), True),
        ("10.0.0.1:7000", ("10.0.0.1", 7000), False),
        ("192.168.0.1:7000", ("192.168.0.1", 7000), False),
        ("[2001:db8::1]:7000", ("2001:db8::1", 7000), False),
        ("kvorum-a-0.kvorum:7000", ("kvorum-a-0.kvorum", 7000), False),
        ("localhost.example:7000", ("localhost.example", 7000), False),
    ],
)
def test_addresses_say_whether_they_leave_the_machine(
    address: str, parts: tuple[str, int], loopback: bool
) -> None:
    assert split_address(address) == parts
    assert Member("a", "a", 0, address).is_loopback is loopback


def test_the_digest_does_not_depend_on_the_order_of_members() -> None:
    small = grid(3, 1)
    digests = {replace(small, members=p).digest() for p in permutations(small.members)}
    assert digests == {small.digest()}
    assert len(small.digest()) == 32


def test_the_digest_changes_with_every_field() -> None:
    one, *others = TWO_BY_THREE.members
    owners = list(TWO_BY_THREE.slots.owners)
    owners[-1] = 0
    variants = [
        TWO_BY_THREE,
        replace(TWO_BY_THREE, cluster="other"),
        replace(TWO_BY_THREE, epoch=2),
        replace(TWO_BY_THREE, slots=SlotMap(tuple(owners))),
        replace(TWO_BY_THREE, members=TWO_BY_THREE.members[1:]),
        *(
            replace(TWO_BY_THREE, members=(changed, *others))
            for changed in (
                replace(one, name="other"),
                replace(one, zone="other"),
                replace(one, shard=2),
                replace(one, address="10.9.9.9:7000"),
            )
        ),
    ]
    assert len({variant.digest() for variant in variants}) == len(variants)


def test_the_canonical_bytes_are_spelled_out() -> None:
    """Members of different versions must agree on them: a change here changes the protocol."""
    expected = (
        b"kvorum.cluster-map.v1\0"
        + struct.pack("<I", 4) + b"prod" + struct.pack("<QQ", 1, 1)
        + struct.pack("<I", 5) + b"n-0-0" + struct.pack("<I", 6) + b"zone-0"
        + struct.pack("<Q", 0) + struct.pack("<I", 13) + b"10.0.0.1:7000"
        + struct.pack("<QQQ", 1, 16_384, 0)
    )  # fmt: skip
    assert grid(1, 1).canonical() == expected
    assert grid(1, 1).digest() == hashlib.sha3_256(expected).digest()
