"""ClusterFile: everything that all members of a cluster must agree on, as one TOML text.

It stays as it is while the cluster runs. Members compare its digest and refuse to talk across
different files. It holds secrets (`key_secret` and the two tokens): they appear in no error
message and in no `repr`.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError, shown
from kvorum.core.keys import SECRET_BYTES
from kvorum.placement import canonical, clustertext
from kvorum.placement.slots import SlotMap
from kvorum.placement.tables import Table, pairs
from kvorum.placement.tenancy import NamespaceSpec, Tenant
from kvorum.placement.topology import ClusterMap, Member

FORMAT: Final = 1
DEFAULT_TENANT: Final = "default"
_MAGIC: Final = b"kvorum.cluster-file.v1\0"
_TOKEN: Final = re.compile(r"[!-~]+", re.ASCII)
_HEX_SECRET: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """One cluster's members, secrets, tenants and first namespaces.

    Attributes:
        map: members and slots.
        key_secret: 32 random bytes from which every tenant's key salt is derived.
        peer_token: what members show one another: 16 to 512 visible ASCII characters.
        admin_token: what an operator shows to drain a node; another one.
        tenants: who may use the cluster; empty for one open tenant "default", whom nobody need
            prove to be.
        namespaces: what exists from the start.

    Raises:
        InvalidArgumentError: a field is malformed, or two fields contradict one another.
        TooLargeError: too many tenants or namespaces.
    """

    map: ClusterMap
    key_secret: bytes = field(repr=False)
    peer_token: str = field(repr=False)
    admin_token: str = field(repr=False)
    tenants: tuple[Tenant, ...] = ()
    namespaces: tuple[NamespaceSpec, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.key_secret, bytes) or len(self.key_secret) != SECRET_BYTES:
            raise InvalidArgumentError(
                "key_secret has another length",
                field="secrets.key_secret",
                limit=f"{SECRET_BYTES} bytes",
            )
        _check_token("peer_token", self.peer_token)
        _check_token("admin_token", self.admin_token)
        _check_tokens_differ(self)
        _check_tenants(self.tenants)
        _check_namespaces(self)

    @classmethod
    def local(
        cls,
        zones: int,
        shards: int,
        ports: Sequence[int],
        key_secret: bytes,
        peer_token: str,
        admin_token: str,
    ) -> Self:
        """Describe a cluster on this machine, open to everyone on it.

        Args:
            zones: zones "a", "b" and so on, 1 to 16.
            shards: shards, and so members in each zone.
            ports: `zones` * `shards` ports, zone by zone: a-0, a-1, ..., b-0, and so on.
            key_secret: 32 random bytes.
            peer_token: what members show one another.
            admin_token: what an operator shows.

        Raises:
            InvalidArgumentError: a number is out of range, or the ports are too few or too many.
        """
        slots = SlotMap.even(shards)
        if not 1 <= zones <= limits.ZONES_MAX:
            raise InvalidArgumentError(
                f"{zones} zones", field="zones", limit=f"1 to {limits.ZONES_MAX}"
            )
        if len(ports) != zones * shards:
            raise InvalidArgumentError(
                f"{len(ports)} ports for {zones} zones of {shards} shards",
                field="ports",
                limit=f"exactly {zones * shards}",
            )
        seats = [(zone, i) for zone in string.ascii_lowercase[:zones] for i in range(shards)]
        members = tuple(
            Member(f"kvorum-{zone}-{shard}", zone, shard, f"127.0.0.1:{port}")
            for (zone, shard), port in zip(seats, ports, strict=True)
        )
        return cls(ClusterMap("local", 1, members, slots), key_secret, peer_token, admin_token)

    @property
    def is_open(self) -> bool:
        """Whether the file names no tenant, so that every caller is the tenant "default"."""
        return not self.tenants

    def check_exposure(self, *, tls: bool) -> None:
        """Check that nothing listens beyond this machine without TLS.

        Raises:
            InvalidArgumentError: a member's address is not a loopback address and `tls` is False.
        """
        for member in () if tls else self.map.members:
            if not member.is_loopback:
                raise InvalidArgumentError(
                    f"{member.name} listens on {member.address} without TLS",
                    field="members.address",
                    limit="a loopback address, or TLS",
                )

    def digest(self) -> bytes:
        """Return SHA3-256 over all that members must agree on, 32 bytes.

        The key secret goes in as its own SHA3-256. The order of members, tenants and namespaces
        does not change it, nor do the two tokens: whoever lacks them is refused anyway.
        """
        tenants = sorted(self.tenants, key=lambda tenant: tenant.name)
        namespaces = sorted(self.namespaces, key=lambda spec: (spec.tenant, spec.name))
        out = bytearray(_MAGIC)
        out += self.map.digest() + hashlib.sha3_256(self.key_secret).digest()
        out += canonical.numbers(len(tenants), len(namespaces))
        out += b"".join(tenant.canonical() for tenant in tenants)
        out += b"".join(spec.canonical() for spec in namespaces)
        return hashlib.sha3_256(out).digest()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cluster file.

        Raises:
            InvalidArgumentError: not TOML, a key is unknown, missing or of another type, or the
                values do not fit together; `field` names the key.
            TooLargeError: too long, or too many of something.
        """
        top = Table.parse(text)
        version = top.integer("format")
        if version != FORMAT:
            raise InvalidArgumentError(
                f"the cluster file has the format {shown(version)}",
                field="format",
                limit=f"{FORMAT}",
            )
        cluster_map = clustertext.read_map(top)
        key_secret, peer_token, admin_token = _read_secrets(top.table("secrets"))
        tenants = clustertext.read_tenants(top)
        replicas = min(limits.REPLICAS_DEFAULT, len(cluster_map.zones))
        namespaces = clustertext.read_namespaces(top, replicas)
        top.end()
        return cls(cluster_map, key_secret, peer_token, admin_token, tenants, namespaces)

    def render(self) -> str:
        """Return the file's text; `parse` gives back an equal value."""
        secrets = {
            "key_secret": self.key_secret.hex(),
            "peer_token": self.peer_token,
            "admin_token": self.admin_token,
        }
        return "\n".join(
            [
                f"format = {FORMAT}\n",
                clustertext.write_map(self.map),
                f"[secrets]\n{pairs(secrets)}",
                *clustertext.write_rows("members", self.map.members),
                *clustertext.write_rows("tenants", self.tenants),
                *clustertext.write_namespaces(self.namespaces),
            ]
        )


def _read_secrets(table: Table) -> tuple[bytes, str, str]:
    key_secret = table.text("key_secret")
    if not _HEX_SECRET.fullmatch(key_secret):
        raise InvalidArgumentError(
            "key_secret is not hexadecimal or has another length",
            field="secrets.key_secret",
            limit=f"{2 * SECRET_BYTES} hex digits",
        )
    secrets = bytes.fromhex(key_secret), table.text("peer_token"), table.text("admin_token")
    table.end()
    return secrets


def _check_token(name: str, token: object) -> None:
    low, high = limits.TOKEN_CHARS_MIN, limits.TOKEN_CHARS_MAX
    if not isinstance(token, str) or not low <= len(token) <= high or not _TOKEN.fullmatch(token):
        raise InvalidArgumentError(
            f"{name} is malformed",
            field=f"secrets.{name}",
            limit=f"{low} to {high} visible ASCII characters",
        )


def _check_tokens_differ(file: ClusterFile) -> None:
    """A token must stand for one party: the node asks which one a token's digest belongs to."""
    digests = [
        hashlib.sha256(file.peer_token.encode()).hexdigest(),
        hashlib.sha256(file.admin_token.encode()).hexdigest(),
        *(tenant.token_sha256 for tenant in file.tenants),
    ]
    if len(set(digests)) != len(digests):
        raise InvalidArgumentError(
            "two parties have the same token",
            field="secrets.admin_token" if digests[0] == digests[1] else "tenants.token_sha256",
            limit="a token of its own for the peers, the operator and each tenant",
        )


def _check_tenants(tenants: Sequence[Tenant]) -> None:
    if len(tenants) > limits.TENANTS_MAX:
        raise TooLargeError(
            f"{len(tenants)} tenants", field="tenants", limit=f"{limits.TENANTS_MAX} tenants"
        )
    _check_unique("tenants", ((tenant.name,) for tenant in tenants))


def _check_namespaces(file: ClusterFile) -> None:
    if len(file.namespaces) > limits.NAMESPACES_MAX:
        raise TooLargeError(
            f"{len(file.namespaces)} namespaces",
            field="namespaces",
            limit=f"{limits.NAMESPACES_MAX} namespaces",
        )
    _check_unique("namespaces", ((spec.tenant, spec.name) for spec in file.namespaces))
    known = {tenant.name for tenant in file.tenants} or {DEFAULT_TENANT}
    zones = len(file.map.zones)
    for index, spec in enumerate(file.namespaces):
        if spec.tenant not in known:
            raise InvalidArgumentError(
                f"namespace {spec.name} belongs to the unknown tenant {spec.tenant}",
                field=f"namespaces[{index}].tenant",
                limit="a tenant of this file" if file.tenants else f'"{DEFAULT_TENANT}"',
            )
        if spec.replicas > zones:
            raise InvalidArgumentError(
                f"namespace {spec.name} wants {spec.replicas} replicas in {zones} zones",
                field=f"namespaces[{index}].replicas",
                limit=f"{zones}, one for each zone",
            )


def _check_unique(kind: str, names: Iterable[tuple[str, ...]]) -> None:
    seen = set()
    for index, name in enumerate(names):
        if name in seen:
            raise InvalidArgumentError(
                f"{kind} names {'/'.join(name)} twice",
                field=f"{kind}[{index}].name",
                limit="unique",
            )
        seen.add(name)
