"""Who calls: a tenant, another member, or an operator, proven by the bearer token they show.

A token is looked up by its SHA-256. Nothing compares secrets byte by byte, so how long an answer
takes says nothing about how close a guess was. With TLS, `server.py` has already refused whoever
has no certificate of the cluster's authority.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kvorum.core.errors import PermissionDeniedError, UnauthenticatedError
from kvorum.placement import DEFAULT_TENANT, ClusterFile

Metadata: TypeAlias = "Iterable[tuple[str, str | bytes]] | None"

_HEADER: Final = "authorization"
_SCHEME: Final = "Bearer "


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request; exactly one of the three.

    Attributes:
        tenant: name of the tenant; None for a member or an operator.
        is_peer: whether it is a member of the cluster.
        is_admin: whether it is an operator.
    """

    tenant: str | None = None
    is_peer: bool = False
    is_admin: bool = False


_PEER: Final = Caller(is_peer=True)
_ADMIN: Final = Caller(is_admin=True)


class Authenticator:
    """Knows the tokens of one cluster file, as digests."""

    def __init__(self, cluster: ClusterFile) -> None:
        parties = {_digest(cluster.peer_token): _PEER, _digest(cluster.admin_token): _ADMIN}
        parties |= {tenant.token_sha256: Caller(tenant.name) for tenant in cluster.tenants}
        self._parties: Mapping[str, Caller] = parties
        self._nobody = Caller(DEFAULT_TENANT) if cluster.is_open else None

    def caller(self, metadata: Metadata) -> Caller:
        """Return who calls.

        Raises:
            UnauthenticatedError: no token where one is needed, or one that nobody has.
        """
        token = _bearer(metadata)
        found = self._nobody if token is None else self._parties.get(_digest(token))
        if found is None:
            raise UnauthenticatedError(
                "no token was shown" if token is None else "nobody has this token",
                field=_HEADER,
                limit="Bearer <token of a tenant, of the peers or of the operator>",
            )
        return found

    def tenant(self, metadata: Metadata) -> str:
        """Return the name of the tenant that calls.

        Raises:
            UnauthenticatedError: see `caller`.
            PermissionDeniedError: a member or an operator calls, who own no blocks.
        """
        caller = self.caller(metadata)
        if caller.tenant is None:
            raise PermissionDeniedError(
                "this call is for tenants", field=_HEADER, limit="the token of a tenant"
            )
        return caller.tenant

    def require_peer(self, metadata: Metadata) -> None:
        """Check that another member calls.

        Raises:
            UnauthenticatedError: see `caller`.
            PermissionDeniedError: someone else calls.
        """
        if not self.caller(metadata).is_peer:
            raise PermissionDeniedError(
                "this call is for members of the cluster", field=_HEADER, limit="the peer token"
            )

    def require_admin(self, metadata: Metadata) -> None:
        """Check that an operator calls.

        Raises:
            UnauthenticatedError: see `caller`.
            PermissionDeniedError: someone else calls.
        """
        if not self.caller(metadata).is_admin:
            raise PermissionDeniedError(
                "this call is for operators", field=_HEADER, limit="the admin token"
            )


def credentials(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that shows `token`."""
    return ((_HEADER, _SCHEME + token),)


def _bearer(metadata: Metadata) -> str | None:
    for key, value in metadata or ():
        if key == _HEADER:
            if not isinstance(value, str) or not value.startswith(_SCHEME):
                raise UnauthenticatedError(
                    "the credentials are of another kind", field=_HEADER, limit="Bearer <token>"
                )
            return value[len(_SCHEME) :]
    return None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
