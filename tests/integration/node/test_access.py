"""Who may speak with a node, about what: tokens, tenants, protocol, map and incarnation."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from kvorum.core import errors
from kvorum.core.errors import KvorumError
from kvorum.core.keys import tenant_salt
from kvorum.node import Node
from kvorum.placement import ClusterFile, Tenant
from kvorum.v1 import cache_pb2, cluster_pb2, common_pb2, namespace_pb2, replication_pb2
from tests.integration.node.conftest import Process
from tests.integration.node.rig import OPAQUE, Caller, local_file, part, running

ALICE, BOB = "alice-token-0123456789", "bob-token-0123456789"


def tenant(name: str, token: str) -> Tenant:
    return Tenant(name, hashlib.sha256(token.encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class Closed:
    """A node with two tenants."""

    file: ClusterFile
    node: Node

    def caller(self, token: str | None) -> Caller:
        return Caller(self.node.address, token=token)


@pytest.fixture
async def closed() -> AsyncIterator[Closed]:
    file = replace(local_file(), tenants=(tenant("alice", ALICE), tenant("bob", BOB)))
    async with running(file) as [node]:
        yield Closed(file, node)


async def test_tenants_cannot_see_each_other(closed: Closed) -> None:
    """Goal: the same name and key in two tenants are two blocks, with different key salts."""
    async with closed.caller(ALICE) as alice, closed.caller(BOB) as bob:
        hers = await alice.create("shared")
        bob.namespace = alice.namespace
        with pytest.raises(errors.NamespaceNotFoundError):
            await bob.lookup([b"k" * 64])
        his = await bob.create("shared")
        assert (hers.tenant, his.tenant) == ("alice", "bob")
        assert hers.key_salt == tenant_salt(closed.file.key_secret, "alice") != his.key_salt
        one = part(b"alice's bytes")
        await alice.put([one])
        assert (await bob.lookup([one.key])).present_blocks == 0
        [got] = await bob.get_parts([one])
        assert (got.miss, bytes(got.data)) == (common_pb2.MISS_REASON_NEVER_STORED, b"")
        assert (await alice.lookup([one.key])).present_blocks == 1
        assert [n.blocks for n in (await bob.status()).namespaces] == [0]


@pytest.mark.parametrize("token", [None, "nobody-token-0123456789"])
async def test_without_a_tenants_token_there_is_nothing(closed: Closed, token: str | None) -> None:
    async with closed.caller(token) as nobody:
        with pytest.raises(errors.UnauthenticatedError) as caught:
            await nobody.create()
        assert caught.value.field == "authorization"
        for call in (
            nobody.lookup([b"k" * 64]),
            nobody.get_parts([part(b"x")]),
            nobody.put([part(b"x")]),
            nobody.on_blocks("Delete", [part(b"x")]),
            nobody.status(),
        ):
            with pytest.raises(errors.UnauthenticatedError):
                await call


async def test_everyone_finds_the_cluster(closed: Closed) -> None:
    async with closed.caller(None) as nobody:
        topology = await nobody.call(
            nobody.cluster.GetTopology, cluster_pb2.GetTopologyRequest(context=nobody.context)
        )
        assert topology.map_digest == closed.file.digest()
        assert [m.name for m in topology.members] == ["kvorum-a-0"]
        assert [(r.count, r.shard) for r in topology.slots] == [(16_384, 0)]
        assert topology.epoch == 1
        assert topology.members[0].state == cluster_pb2.MEMBER_STATE_UP
        assert topology.members[0].incarnation == 1_000


@pytest.mark.parametrize("which", ["peer", "admin"])
async def test_members_and_operators_own_no_blocks(closed: Closed, which: str) -> None:
    token = getattr(closed.file, f"{which}_token")
    async with closed.caller(token) as other:
        with pytest.raises(errors.PermissionDeniedError):
            await other.create()
        with pytest.raises(errors.PermissionDeniedError):
            await other.put([part(b"x")])


async def test_an_operator_sees_all_tenants(closed: Closed) -> None:
    async with closed.caller(ALICE) as alice, closed.caller(closed.file.admin_token) as operator:
        await alice.create("hers")
        assert [n.name for n in (await operator.status()).namespaces] == ["alice/hers"]


@pytest.mark.parametrize("which", ["tenant", "peer"])
async def test_only_an_operator_drains(closed: Closed, which: str) -> None:
    token = ALICE if which == "tenant" else closed.file.peer_token
    async with closed.caller(token) as other:
        with pytest.raises(errors.PermissionDeniedError):
            await other.call(
                other.cluster.DrainNode, cluster_pb2.DrainNodeRequest(context=other.context)
            )


@pytest.mark.parametrize("which", ["tenant", "admin", "nobody"])
async def test_only_members_speak_as_members(closed: Closed, which: str) -> None:
    tokens = {"tenant": ALICE, "admin": closed.file.admin_token}
    async with closed.caller(tokens.get(which)) as other:
        context = common_pb2.RequestContext(protocol_version=1, map_digest=closed.file.digest())
        kind = errors.PermissionDeniedError if which in tokens else errors.UnauthenticatedError
        for stub, request in (
            (other.replication.Hello, replication_pb2.HelloRequest(context=context)),
            (
                other.replication.ApplyNamespace,
                replication_pb2.ApplyNamespaceRequest(context=context),
            ),
        ):
            with pytest.raises(kind):
                await other.call(stub, request)


CONTEXTS: dict[str, tuple[common_pb2.RequestContext, type[KvorumError], str]] = {
    "no version": (
        common_pb2.RequestContext(),
        errors.ProtocolVersionError,
        "context.protocol_version",
    ),
    "a later version": (
        common_pb2.RequestContext(protocol_version=2),
        errors.ProtocolVersionError,
        "context.protocol_version",
    ),
    "another map": (
        common_pb2.RequestContext(protocol_version=1, map_digest=b"m" * 32),
        errors.MapMismatchError,
        "context.map_digest",
    ),
    "an earlier life": (
        common_pb2.RequestContext(protocol_version=1, incarnation=7),
        errors.IncarnationError,
        "context.incarnation",
    ),
}


@pytest.mark.parametrize("case", list(CONTEXTS))
async def test_callers_that_mean_another_node_or_cluster(caller: Caller, case: str) -> None:
    """Goal: every call checks version, map and incarnation."""
    context, kind, field = CONTEXTS[case]
    caller.context.CopyFrom(context)
    calls = [
        caller.lookup([b"k" * 64]),
        caller.get_parts([part(b"x")]),
        caller.put([part(b"x")]),
        caller.status(),
        caller.create("other"),
        caller.call(
            caller.cluster.GetTopology, cluster_pb2.GetTopologyRequest(context=caller.context)
        ),
        caller.call(
            caller.namespaces.ListNamespaces,
            namespace_pb2.ListNamespacesRequest(context=caller.context),
        ),
        *(caller.on_blocks(v, [part(b"x")]) for v in ("Delete", "Touch", "Pin", "Unpin", "Stat")),
    ]
    for call in calls:
        with pytest.raises(kind) as caught:
            await call
        assert caught.value.field == field
        assert caught.value.limit


async def test_the_right_map_and_incarnation_are_welcome(process: Process) -> None:
    async with Caller(process.address, digest=process.file.digest()) as caller:
        incarnation = (await caller.status()).answerer.incarnation
        caller.context.incarnation = incarnation
        assert (await caller.status()).answerer.incarnation == incarnation


async def test_a_lease_of_an_earlier_life_answers_stale_epoch(caller: Caller) -> None:
    one, absent = part(b"here"), part(b"gone")
    await caller.put([one])
    items = [cache_pb2.GetItem(block=p.ref) for p in (one, absent)]
    here, gone = await caller.get(items, common_pb2.Lease(incarnation=1))
    assert bytes(here.data) == b"here"
    assert gone.miss == common_pb2.MISS_REASON_STALE_EPOCH
    mine = (await caller.status()).answerer.incarnation
    _, gone = await caller.get(items, common_pb2.Lease(incarnation=mine))
    assert gone.miss == common_pb2.MISS_REASON_NEVER_STORED


async def test_slots_of_another_shard() -> None:
    """Goal: a node answers for its own slots, and says whose the others are.

    Method: of two shards only the first runs; shard 1 owns slots from 8,192 on, so keys that
    begin with 0xff.
    """
    async with running(local_file(shards=2)) as [node], Caller(node.address) as caller:
        await caller.create()
        ours = part(b"x")
        ours = replace(ours, key=b"\0" + ours.key[1:])
        theirs = replace(ours, key=b"\xff" + ours.key[1:])
        results = await caller.put([ours, theirs])
        assert results[0].outcome == cache_pb2.PUT_OUTCOME_STORED
        assert results[1].error.code == common_pb2.ERROR_CODE_NOT_OWNER
        stale = common_pb2.MISS_REASON_STALE_EPOCH
        assert [g.miss for g in await caller.get_parts([theirs, ours])] == [stale, 0]
        assert [s.miss for s in (await caller.on_blocks("Stat", [theirs, ours])).stats] == [
            stale,
            0,
        ]
        for verb in ("Touch", "Pin", "Unpin"):
            assert list((await caller.on_blocks(verb, [theirs, ours])).misses) == [stale, 0]
        with pytest.raises(errors.NotOwnerError) as caught:
            await caller.on_blocks("Delete", [ours, theirs])
        assert caught.value.field == "blocks[1].slot"
        # 129 blocks are two segments of up to 128 blocks of 16 tokens.
        keys = [ours.key, *(bytes([i]) * 64 for i in range(1, 128)), theirs.key]
        before = await caller.status()
        answer = await caller.lookup(keys)
        assert answer.present_blocks == 1
        assert {b.shard for b in answer.blocks[:128]} == {0}
        assert (answer.blocks[128].shard, answer.blocks[128].miss) == (1, stale)
        after = await caller.status()
        assert after.lookup_hits + after.lookup_misses - before.lookup_hits == 128


async def test_a_name_that_two_fingerprints_want(caller: Caller) -> None:
    with pytest.raises(errors.NamespaceConflictError) as caught:
        await caller.create(caller.namespace.name, replace(OPAQUE, model="another"))
    assert caught.value.field == "namespace.fingerprint"
