"""Mutual TLS: nobody without a certificate of the cluster's authority gets as far as a request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme

from kvorum.core import errors
from kvorum.v1 import cache_pb2
from tests.integration.node.rig import CALL_S, Caller, local_file, part, running

NAMES = ("kvorum-a-0", "kvorum-b-0")


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority, and where its files are."""

    ca: trustme.CA
    settings: dict[str, Any]

    def credentials(self, issuer: trustme.CA | None) -> grpc.ChannelCredentials:
        """Return what a client shows: a certificate of `issuer`, or none."""
        root = self.ca.cert_pem.bytes()
        if issuer is None:
            return grpc.ssl_channel_credentials(root)
        leaf = issuer.issue_cert("worker.example.org")
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        return grpc.ssl_channel_credentials(root, leaf.private_key_pem.bytes(), chain)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    directory: Path = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    leaf = ca.issue_cert("127.0.0.1")
    ca.cert_pem.write_to_path(directory / "ca.pem")
    leaf.private_key_pem.write_to_path(directory / "key.pem")
    for blob in leaf.cert_chain_pems:
        blob.write_to_path(directory / "cert.pem", append=True)
    paths = {f"tls_{name}": str(directory / f"{name}.pem") for name in ("ca", "cert", "key")}
    return Authority(ca, paths)


async def test_a_client_with_a_certificate_is_served(authority: Authority) -> None:
    async with (
        running(local_file(), **authority.settings) as [node],
        Caller(node.address, credentials=authority.credentials(authority.ca)) as caller,
    ):
        await caller.create()
        one = part(b"secret bytes")
        assert (await caller.put([one]))[0].outcome == cache_pb2.PUT_OUTCOME_STORED
        assert bytes((await caller.get_parts([one]))[0].data) == one.data


@pytest.mark.parametrize("who", ["nobody", "of another authority", "without TLS"])
async def test_everyone_else_is_refused(authority: Authority, who: str) -> None:
    issuer = trustme.CA() if who == "of another authority" else None
    credentials = None if who == "without TLS" else authority.credentials(issuer)
    async with (
        running(local_file(), **authority.settings) as [node],
        Caller(node.address, credentials=credentials) as caller,
    ):
        with pytest.raises(errors.UnavailableError):
            await caller.create()
        async with Caller(node.address, credentials=authority.credentials(authority.ca)) as welcome:
            await welcome.create()


async def test_a_client_that_does_not_know_the_authority_refuses_the_node(
    authority: Authority,
) -> None:
    stranger = Authority(trustme.CA(), {})
    async with (
        running(local_file(), **authority.settings) as [node],
        Caller(node.address, credentials=stranger.credentials(authority.ca)) as caller,
    ):
        with pytest.raises(errors.UnavailableError):
            await caller.create()


async def test_members_speak_tls_with_one_another(authority: Authority) -> None:
    """Goal: a block that one member took arrives at the other, over mutual TLS."""
    credentials = authority.credentials(authority.ca)
    async with (
        running(local_file(2), NAMES, **authority.settings) as nodes,
        Caller(nodes[0].address, credentials=credentials) as first,
        Caller(nodes[1].address, credentials=credentials) as second,
        asyncio.timeout(CALL_S),
    ):
        await first.create()
        one = part(b"carried")
        await first.put([one])
        second.namespace = first.namespace
        while (got := (await second.get_parts([one]))[0]).miss:
            await asyncio.sleep(0.02)
        assert bytes(got.data) == one.data


@pytest.mark.parametrize("setting", ["tls_ca", "tls_cert", "tls_key"])
async def test_a_file_that_is_not_there_is_a_typed_error(
    authority: Authority, setting: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        async with running(local_file(), **authority.settings | {setting: "/nowhere.pem"}):
            pass
    assert caught.value.field == setting


async def test_beyond_loopback_there_is_no_serving_without_tls() -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        async with running(local_file(), listen="0.0.0.0:7000"):
            pass
    assert caught.value.field == "listen"
