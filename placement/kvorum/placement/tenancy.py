"""Tenants and the namespaces that a cluster is born with, as values that check themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, shown
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.names import check_name
from kvorum.placement import canonical
from kvorum.placement.slots import is_integer

_SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_POLICY_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Tenant:
    """Someone whose blocks nobody else can name.

    Attributes:
        name: unique in the cluster.
        token_sha256: SHA-256 of the tenant's bearer token, 64 lower-case hex digits.

    Raises:
        InvalidArgumentError: a field is malformed.
    """

    name: str
    token_sha256: str

    def __post_init__(self) -> None:
        check_name(self.name, "tenant.name")
        if not isinstance(self.token_sha256, str) or not _SHA256_HEX.fullmatch(self.token_sha256):
            raise InvalidArgumentError(
                f"token_sha256 of tenant {self.name} is no SHA-256",
                field="tenant.token_sha256",
                limit="64 lower-case hex digits",
            )

    def canonical(self) -> bytes:
        """Return the bytes that are hashed."""
        return canonical.text(self.name) + canonical.text(self.token_sha256)


@dataclass(frozen=True, slots=True)
class NamespaceSpec:
    """A namespace that exists from the start.

    Attributes:
        tenant: the tenant that owns it.
        name: unique within the tenant.
        fingerprint: what made its blocks.
        replicas: zones that hold each block, 1 to 3.
        ttl_ms: milliseconds after a block's store at which it expires; 0 for never.
        idle_ttl_ms: milliseconds after a block's last use at which it expires; 0 for never.
        quota_bytes: bytes that it may hold on one node; 0 for the node's whole arena.

    Raises:
        InvalidArgumentError: a field is malformed or out of range.
    """

    tenant: str
    name: str
    fingerprint: Fingerprint
    replicas: int = limits.REPLICAS_DEFAULT
    ttl_ms: int = 0
    idle_ttl_ms: int = 0
    quota_bytes: int = 0

    def __post_init__(self) -> None:
        check_name(self.tenant, "namespace.tenant")
        check_name(self.name, "namespace.name")
        if not isinstance(self.fingerprint, Fingerprint):
            raise InvalidArgumentError(
                f"namespace {self.name} has no fingerprint",
                field="namespace.fingerprint",
                limit="required",
            )
        for name, value in self.policy().items():
            low, high = (1, limits.REPLICAS_MAX) if name == "replicas" else (0, _POLICY_MAX)
            if not is_integer(value) or not low <= value <= high:
                raise InvalidArgumentError(
                    f"{name} of namespace {self.name} is {shown(value)}",
                    field=f"namespace.{name}",
                    limit=f"{low} to {high}",
                )

    def policy(self) -> dict[str, int]:
        """Return the policy fields by name."""
        return {
            "replicas": self.replicas,
            "ttl_ms": self.ttl_ms,
            "idle_ttl_ms": self.idle_ttl_ms,
            "quota_bytes": self.quota_bytes,
        }

    def canonical(self) -> bytes:
        """Return the bytes that are hashed."""
        return (
            canonical.text(self.tenant)
            + canonical.text(self.name)
            + self.fingerprint.digest()
            + canonical.numbers(*self.policy().values())
        )
