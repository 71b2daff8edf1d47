"""Authenticator: tenants, members and operators are told apart by their tokens."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from kvorum.core.errors import PermissionDeniedError, UnauthenticatedError
from kvorum.node.auth import Authenticator, Caller, credentials
from kvorum.placement import ClusterFile, Tenant

PEER, ADMIN, TENANT = "peer-token-" * 3, "admin-token-" * 3, "tenant-token-" * 3
OPEN = ClusterFile.local(1, 1, [7000], bytes(32), PEER, ADMIN)
CLOSED = replace(OPEN, tenants=(Tenant("acme", hashlib.sha256(TENANT.encode()).hexdigest()),))


def test_each_token_stands_for_one_party() -> None:
    auth = Authenticator(CLOSED)
    assert auth.caller(credentials(PEER)) == Caller(is_peer=True)
    assert auth.caller(credentials(ADMIN)) == Caller(is_admin=True)
    assert auth.caller(credentials(TENANT)) == Caller("acme")
    assert auth.tenant(credentials(TENANT)) == "acme"
    auth.require_peer(credentials(PEER))
    auth.require_admin(credentials(ADMIN))


def test_in_an_open_cluster_nobody_need_prove_to_be_the_default_tenant() -> None:
    auth = Authenticator(OPEN)
    assert auth.tenant(None) == auth.tenant(()) == auth.tenant([("user-agent", "x")]) == "default"


@pytest.mark.parametrize("cluster", [OPEN, CLOSED])
@pytest.mark.parametrize(
    "metadata",
    [
        credentials("nobody's token"),
        credentials(""),
        credentials(TENANT + "x"),
        [("authorization", f"Basic {PEER}")],
        [("authorization", PEER)],
        [("authorization", b"Bearer \xff")],
    ],
)
def test_a_token_that_nobody_has_is_refused(
    cluster: ClusterFile, metadata: list[tuple[str, str | bytes]]
) -> None:
    with pytest.raises(UnauthenticatedError) as caught:
        Authenticator(cluster).caller(metadata)
    assert caught.value.field == "authorization"
    assert PEER not in str(caught.value)


def test_no_token_is_refused_where_there_are_tenants() -> None:
    with pytest.raises(UnauthenticatedError):
        Authenticator(CLOSED).tenant(None)


@pytest.mark.parametrize("token", [PEER, ADMIN])
def test_members_and_operators_own_no_blocks(token: str) -> None:
    with pytest.raises(PermissionDeniedError):
        Authenticator(CLOSED).tenant(credentials(token))


@pytest.mark.parametrize("token", [TENANT, ADMIN])
def test_only_a_member_is_a_member(token: str) -> None:
    with pytest.raises(PermissionDeniedError):
        Authenticator(CLOSED).require_peer(credentials(token))


@pytest.mark.parametrize("metadata", [credentials(TENANT), credentials(PEER)])
def test_only_an_operator_is_an_operator(metadata: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(PermissionDeniedError):
        Authenticator(CLOSED).require_admin(metadata)


def test_the_open_tenant_is_no_member_and_no_operator() -> None:
    auth = Authenticator(OPEN)
    with pytest.raises(PermissionDeniedError):
        auth.require_peer(None)
    with pytest.raises(PermissionDeniedError):
        auth.require_admin(None)
