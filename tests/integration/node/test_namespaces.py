"""Namespaces: made, changed and deleted anywhere, known everywhere, and settled by revision."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kvorum.core import errors
from kvorum.node import Node
from kvorum.node.engine.events import ApplyNamespace, NamespaceId
from kvorum.placement import NamespaceSpec
from kvorum.v1 import cache_pb2, common_pb2, namespace_pb2
from tests.integration.node.rig import CALL_S, OPAQUE, Caller, local_file, part, running

NAMES = ("kvorum-a-0", "kvorum-b-0", "kvorum-c-0")


async def get(caller: Caller, name: str) -> namespace_pb2.Namespace:
    request = namespace_pb2.GetNamespaceRequest(context=caller.context, name=name)
    answer: namespace_pb2.GetNamespaceResponse = await caller.call(
        caller.namespaces.GetNamespace, request
    )
    return answer.namespace


async def update(caller: Caller, name: str, **fields: Any) -> namespace_pb2.Namespace:
    request = namespace_pb2.UpdateNamespaceRequest(context=caller.context, name=name, **fields)
    answer: namespace_pb2.UpdateNamespaceResponse = await caller.call(
        caller.namespaces.UpdateNamespace, request
    )
    return answer.namespace


async def delete(caller: Caller, name: str) -> bool:
    request = namespace_pb2.DeleteNamespaceRequest(context=caller.context, name=name)
    answer: namespace_pb2.DeleteNamespaceResponse = await caller.call(
        caller.namespaces.DeleteNamespace, request
    )
    return answer.deleted


def policy(**fields: Any) -> namespace_pb2.NamespacePolicy:
    return namespace_pb2.NamespacePolicy(**fields)


async def all_up(nodes: list[Node]) -> None:
    """Wait until every node has heard every other."""
    async with asyncio.timeout(CALL_S):
        while not all(
            node._membership.incarnation(name)
            for node in nodes
            for name in NAMES
            if node._membership.knows(name)
        ):
            await asyncio.sleep(0.02)


async def test_make_read_list_change_and_delete(caller: Caller) -> None:
    name = caller.namespace.name
    made = await get(caller, name)
    assert (made.revision, made.tenant, made.policy.replicas) == (1, "default", 1)
    assert made.policy.tier == common_pb2.TIER_EVENTUAL
    assert len(made.key_salt) == 32
    again = namespace_pb2.CreateNamespaceRequest(context=caller.context, namespace=made)
    assert not (await caller.call(caller.namespaces.CreateNamespace, again)).created

    listed = await caller.call(
        caller.namespaces.ListNamespaces,
        namespace_pb2.ListNamespacesRequest(context=caller.context),
    )
    assert made in listed.namespaces
    assert [n.name for n in listed.namespaces] == sorted(n.name for n in listed.namespaces)

    changed = await update(caller, name, policy=policy(ttl_ms=60_000), if_revision=1)
    assert (changed.revision, changed.policy.ttl_ms) == (2, 60_000)
    with pytest.raises(errors.NamespaceConflictError) as caught:
        await update(caller, name, policy=policy(), if_revision=1)
    assert (caught.value.field, caught.value.limit) == ("if_revision", "2")
    with pytest.raises(errors.NamespaceConflictError) as caught:
        await caller.call(caller.namespaces.CreateNamespace, again)
    assert caught.value.field == "namespace.policy"

    one = part(b"bytes")
    await caller.put([one])
    assert await delete(caller, name)
    assert not await delete(caller, name)
    for call in (get(caller, name), update(caller, name), caller.lookup([one.key])):
        with pytest.raises(errors.NamespaceNotFoundError):
            await call
    back = await caller.create(name)
    assert back.revision == 4
    assert (await caller.lookup([one.key])).present_blocks == 0


async def test_blocks_expire_when_their_namespace_says_so(caller: Caller) -> None:
    one = part(b"short-lived")
    await caller.put([one])
    await update(caller, caller.namespace.name, policy=policy(ttl_ms=1))
    await asyncio.sleep(0.05)
    [got] = await caller.get_parts([one])
    assert got.miss == common_pb2.MISS_REASON_EXPIRED


async def test_a_quota_is_a_typed_refusal(caller: Caller) -> None:
    await update(caller, caller.namespace.name, policy=policy(quota_bytes=8_192))
    parts = [part(bytes(8_000)) for _ in range(2)]
    [first] = await caller.put(parts[:1])
    assert first.outcome == cache_pb2.PUT_OUTCOME_STORED
    await caller.on_blocks("Touch", parts[:1], lease_ms=60_000)
    [second] = await caller.put(parts[1:])
    assert second.error.code == common_pb2.ERROR_CODE_QUOTA
    assert second.error.retryable


async def test_namespaces_of_the_cluster_file_exist_from_the_start() -> None:
    file = local_file()
    spec = NamespaceSpec("default", "born", OPAQUE, 1, ttl_ms=5)
    async with running(replace(file, namespaces=(spec,))) as [node], Caller(node.address) as caller:
        found = await get(caller, "born")
        assert (found.revision, found.policy.ttl_ms) == (1, 5)


async def test_a_change_reaches_every_member() -> None:
    """Goal: when the call returns, every member that is up knows; the salt is the same."""
    async with running(local_file(3), NAMES) as nodes:
        await all_up(nodes)
        callers = [Caller(node.address) for node in nodes]
        made = await callers[0].create("everywhere", replicas=3)
        assert [await get(c, "everywhere") for c in callers] == [made] * 3
        await update(callers[1], "everywhere", policy=policy(replicas=2))
        assert [(await get(c, "everywhere")).policy.replicas for c in callers] == [2] * 3
        assert await delete(callers[2], "everywhere")
        for caller in callers:
            with pytest.raises(errors.NamespaceNotFoundError):
                await get(caller, "everywhere")
            await caller.channel.close()


async def test_of_two_changes_at_once_one_succeeds() -> None:
    """Goal: a change that loses says so, also if its node has not heard of the other one yet.

    Method: another node has the other change and has told nobody.
    """
    async with (
        running(local_file(3), NAMES, heartbeat_s=20, down_after_s=60) as nodes,
        Caller(nodes[0].address) as caller,
    ):
        await all_up(nodes)
        await caller.create("contested", replicas=2)
        first = nodes[1]._driver.engine.namespace(NamespaceId("default", "contested"))
        assert first is not None
        winner = replace(first, policy=replace(first.policy, ttl_ms=9), revision=2)
        nodes[1]._driver.tell(ApplyNamespace(winner))
        with pytest.raises(errors.NamespaceConflictError) as caught:
            await update(caller, "contested", policy=policy(ttl_ms=5), if_revision=1)
        assert caught.value.field == "namespace.revision"
        assert (await get(caller, "contested")).policy.ttl_ms == 9


async def test_a_member_that_was_away_catches_up() -> None:
    """Goal: what was made, changed and deleted without a member is there a heartbeat after it came.

    Method: the third member starts last; a majority is enough for the changes.
    """
    file = local_file(3)
    async with running(file, NAMES[:2]) as nodes, Caller(nodes[0].address) as caller:
        await all_up_two(nodes)
        await caller.create("kept")
        await caller.create("gone")
        await update(caller, "kept", policy=policy(ttl_ms=9))
        await delete(caller, "gone")
        async with (
            running(file, NAMES[2:], incarnation=2_000) as [late],
            Caller(late.address) as other,
            asyncio.timeout(CALL_S),
        ):
            while not late._driver.engine.namespaces():
                await asyncio.sleep(0.02)
            assert (await get(other, "kept")).policy.ttl_ms == 9
            with pytest.raises(errors.NamespaceNotFoundError):
                await get(other, "gone")


async def all_up_two(nodes: list[Node]) -> None:
    """Wait until two nodes have heard each other."""
    async with asyncio.timeout(CALL_S):
        while not (
            nodes[0]._membership.incarnation(NAMES[1])
            and nodes[1]._membership.incarnation(NAMES[0])
        ):
            await asyncio.sleep(0.02)


async def test_without_a_majority_of_zones_a_change_says_so() -> None:
    """Method: of three zones one runs."""
    async with running(local_file(3)) as [node], Caller(node.address) as caller:
        with pytest.raises(errors.UnavailableError) as caught:
            await caller.create("alone")
        assert caught.value.limit == "a majority of the zones"
        assert caught.value.retryable


async def test_asking_again_succeeds_only_once_a_majority_has_it() -> None:
    """Goal: the answer to a repeated change is about the cluster, not about the node that is asked.

    Method: one of three zones runs, and is asked twice; then a second one joins.
    """
    file = local_file(3)
    async with running(file, NAMES[:1]) as [node], Caller(node.address) as caller:
        for _ in range(2):
            with pytest.raises(errors.UnavailableError):
                await caller.create("alone")
        async with running(file, NAMES[1:2]) as [other]:
            await all_up_two([node, other])
            await caller.create("alone")
            assert NamespaceId("default", "alone") in {
                record.id for record in other._driver.engine.namespaces()
            }
            assert await delete(caller, "alone")
        with pytest.raises(errors.UnavailableError):
            await delete(caller, "alone")
