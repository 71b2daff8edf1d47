"""ClusterMap: the members, and which of them hold a slot. The replica set is a pure function of it.

Member i of every zone serves shard i, so the replicas of a slot always lie in distinct zones.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError, shown
from kvorum.core.names import check_name
from kvorum.placement import canonical
from kvorum.placement.slots import SlotMap, check_shard, is_integer

_MAGIC: Final = b"kvorum.cluster-map.v1\0"
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", re.ASCII)
_ADDRESS_RULE: Final = "host:port or [IPv6]:port, port 1 to 65535, at most 256 characters"


@dataclass(frozen=True, slots=True)
class Member:
    """One cache node.

    Attributes:
        name: unique in the cluster, for example "kvorum-a-0".
        zone: availability zone.
        shard: the shard that it serves, from 0.
        address: host:port of its gRPC server.

    Raises:
        InvalidArgumentError: a field is malformed or out of range.
    """

    name: str
    zone: str
    shard: int
    address: str

    def __post_init__(self) -> None:
        check_name(self.name, "member.name")
        check_name(self.zone, "member.zone")
        check_shard(self.shard, "member.shard")
        split_address(self.address)

    @property
    def is_loopback(self) -> bool:
        """Whether only processes on the same machine can reach its address."""
        host, _ = split_address(self.address)
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False  # a host name may resolve to anything


@dataclass(frozen=True)
class ClusterMap:
    """The members and the owners of the slots at one epoch.

    Attributes:
        cluster: name of the cluster.
        epoch: version of the map, from 1.
        members: all members; their order carries no meaning.
        slots: the owner of every slot.

    Raises:
        InvalidArgumentError: members contradict one another, or a slot has no member.
        TooLargeError: too many members or zones.
    """

    cluster: str
    epoch: int
    members: tuple[Member, ...]
    slots: SlotMap

    def __post_init__(self) -> None:
        check_name(self.cluster, "cluster.name")
        if not is_integer(self.epoch) or not 1 <= self.epoch <= limits.EPOCH_MAX:
            raise InvalidArgumentError(
                f"epoch is {shown(self.epoch)}",
                field="cluster.epoch",
                limit=f"1 to {limits.EPOCH_MAX}",
            )
        _check_members(self.members)
        for shard in sorted(self.slots.counts()):
            if shard not in self._by_shard:
                raise InvalidArgumentError(
                    f"shard {shard} owns slots and has no member",
                    field="slots",
                    limit="every owner has a member",
                )

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self.members}

    @cached_property
    def _by_shard(self) -> dict[int, tuple[Member, ...]]:
        """Members of each shard by zone."""
        shards: dict[int, list[Member]] = {}
        for member in sorted(self.members, key=lambda m: m.zone):
            shards.setdefault(member.shard, []).append(member)
        return {shard: tuple(members) for shard, members in sorted(shards.items())}

    @cached_property
    def zones(self) -> tuple[str, ...]:
        """All zones, sorted."""
        return tuple(sorted({member.zone for member in self.members}))

    @property
    def shards(self) -> tuple[int, ...]:
        """All shards that have a member, sorted; one that was just added owns no slot yet."""
        return tuple(self._by_shard)

    def member(self, name: str) -> Member:
        """Return the member of that name.

        Raises:
            InvalidArgumentError: there is none.
        """
        found = self._by_name.get(name)
        if found is None:
            raise InvalidArgumentError(
                f"{shown(name)} is no member of {self.cluster}",
                field="name",
                limit="one of " + ", ".join(sorted(self._by_name)[:16]),
            )
        return found

    def shard_of(self, slot: int) -> int:
        """Return the shard that owns `slot`.

        Raises:
            InvalidArgumentError: there is no such slot.
        """
        return self.slots.owner(slot)

    def shard_members(self, shard: int) -> tuple[Member, ...]:
        """Return the members of `shard` by zone; none if the map has no such shard."""
        return self._by_shard.get(shard, ())

    def replicas(self, slot: int, count: int) -> tuple[Member, ...]:
        """Return the members that hold `slot` when it has `count` replicas, in home order.

        Home order is the shard's zones rotated by the slot, so that over many slots every zone is
        the first equally often. At most one member of each zone of the shard.

        Raises:
            InvalidArgumentError: there is no such slot, or `count` is below 1.
        """
        if count < 1:
            raise InvalidArgumentError(f"{count} replicas", field="replicas", limit="at least 1")
        members = self.shard_members(self.shard_of(slot))
        first = slot % len(members)
        return (members[first:] + members[:first])[:count]

    def nearest(self, members: Iterable[Member], zone: str | None) -> tuple[Member, ...]:
        """Return `members` with those of `zone` first; the order stays otherwise."""
        return tuple(sorted(members, key=lambda member: member.zone != zone))

    def canonical(self) -> bytes:
        """Return the bytes that are hashed; the order of the members does not change them."""
        out = bytearray(_MAGIC)
        out += canonical.text(self.cluster) + canonical.numbers(self.epoch, len(self.members))
        for member in sorted(self.members, key=lambda m: m.name):
            out += canonical.text(member.name) + canonical.text(member.zone)
            out += canonical.numbers(member.shard) + canonical.text(member.address)
        runs = self.slots.runs()
        out += canonical.numbers(len(runs))
        for run in runs:
            out += canonical.numbers(run.count, run.shard)
        return bytes(out)

    def digest(self) -> bytes:
        """Return SHA3-256 of the canonical bytes, 32 bytes."""
        return hashlib.sha3_256(self.canonical()).digest()


def split_address(address: object) -> tuple[str, int]:
    """Return (host, port); an IPv6 host comes without its brackets.

    Raises:
        InvalidArgumentError: not of the form host:port.
    """
    match = None
    if isinstance(address, str) and len(address) <= limits.ADDRESS_CHARS_MAX:
        match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match[3]) <= 65_535 or (match[1] and not _is_ipv6(match[1])):
        raise InvalidArgumentError(
            f"{shown(address)} is no address", field="member.address", limit=_ADDRESS_RULE
        )
    return match[1] or match[2], int(match[3])


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _check_members(members: Sequence[Member]) -> None:
    """Check what one member alone cannot know."""
    if not members:
        raise InvalidArgumentError("there are no members", field="members", limit="at least 1")
    if len(members) > limits.MEMBERS_MAX:
        raise TooLargeError(
            f"{len(members)} members", field="members", limit=f"{limits.MEMBERS_MAX} members"
        )
    zones = {member.zone for member in members}
    if len(zones) > limits.ZONES_MAX:
        raise TooLargeError(
            f"{len(zones)} zones", field="members.zone", limit=f"{limits.ZONES_MAX} zones"
        )
    seats: dict[tuple[int, str], Member] = {}
    seen: set[tuple[str, str]] = set()
    for index, member in enumerate(members):
        for field in ("name", "address"):
            value = getattr(member, field)
            if (field, value) in seen:
                raise InvalidArgumentError(
                    f"two members have the {field} {value}",
                    field=f"members[{index}].{field}",
                    limit="unique in the cluster",
                )
            seen.add((field, value))
        other = seats.setdefault((member.shard, member.zone), member)
        if other is not member:
            raise InvalidArgumentError(
                f"{other.name} and {member.name} of shard {member.shard} are both in zone "
                f"{member.zone}",
                field=f"members[{index}].zone",
                limit="one member of a shard in each zone",
            )
