"""Tenants: what one stores, names or counts does not exist for another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import MissReason, NamespacePolicy
from kvorum.core.errors import (
    KvorumError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    QuotaError,
    UnauthenticatedError,
)
from kvorum.placement import ClusterFile
from kvorum.v1 import cluster_pb2, common_pb2, namespace_pb2, replication_pb2
from kvorum.v1.replication_pb2_grpc import ReplicationServiceStub
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import MIB
from tests.integration.support.prompts import PATIENCE_S, Prompt, load, same_kv, store
from tests.integration.support.values import OPAQUE, TENSORS, draw_bytes, draw_tokens
from tests.integration.support.wire import CALL_S, Scope, Wire, request_context, typed

RED, BLUE = "token-of-the-red-tenant", "token-of-the-blue-tenant"


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalCluster]:
    """One node with two tenants."""
    settings = LocalSettings(zones=1, memory_bytes=32 * MIB, tenants={"red": RED, "blue": BLUE})
    with LocalCluster(settings) as running:
        yield running


@pytest.fixture(scope="module")
def red(shared: LocalCluster) -> Iterator[Wire]:
    """The node as one tenant sees it."""
    with Wire(shared.endpoints[0], RED) as wire:
        yield wire


@pytest.fixture(scope="module")
def blue(shared: LocalCluster) -> Iterator[Wire]:
    """The node as the other tenant sees it."""
    with Wire(shared.endpoints[0], BLUE) as wire:
        yield wire


def test_two_tenants_use_one_name(
    shared: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: equal names and equal prompts do not meet. Method: both store the same tokens."""
    prompt = Prompt.draw(2, seed)
    other = prompt.other_kv(seed, 1)
    first = connect(shared.endpoints, name, token=RED)
    second = connect(shared.endpoints, name, token=BLUE)
    store(first, prompt)
    missed = second.lookup(prompt.tokens, budget_s=PATIENCE_S)
    assert (missed.tokens, missed.reason) == (0, MissReason.NEVER_STORED)
    assert store(second, other).stored == 2
    assert same_kv(load(first, prompt.tokens), prompt)
    assert same_kv(load(second, prompt.tokens), other)
    assert first.delete(prompt.tokens) == 2
    assert same_kv(load(second, prompt.tokens), other)


def test_keys_are_salted(red: Wire, blue: Wire, name: str, seed: int) -> None:
    """Goal: a tenant cannot compute another's keys. Method: compare salts and keys."""
    one, two = red.create(name, TENSORS), blue.create(name, TENSORS)
    tokens = draw_tokens(32, seed)
    assert len(one.salt) == 32
    assert one.salt != two.salt
    mine, theirs = (s.blocks(tokens, [b"", b""]) for s in (one, two))
    assert not {b.key for b in mine} & {b.key for b in theirs}


def test_a_stolen_key_opens_nothing(red: Wire, blue: Wire, name: str, seed: int) -> None:
    """Goal: even with a tenant's keys another one reads, changes and learns nothing.

    Method: blue asks with red's keys, in a namespace of the same name, for everything there is;
    what it is told of red's block is what it is told of a block that never was.
    """
    scope, own = red.create(name, TENSORS), blue.create(name, TENSORS)
    block = scope.blocks(draw_tokens(16, seed), [draw_bytes(4096, seed)])[0]
    absent = scope.blocks(draw_tokens(16, seed, 1), [draw_bytes(4096, seed)])[0]
    red.put(scope, [block])
    never = common_pb2.MISS_REASON_NEVER_STORED
    for one in (block, absent):
        looked = blue.lookup(own, [one.key])
        assert (looked.present_blocks, [b.miss for b in looked.blocks]) == (0, [never])
        assert [(g.miss, bytes(g.data)) for g in blue.get_blocks(own, [one])] == [(never, b"")]
        assert blue.pin(own, [one]) == [never]
        assert blue.delete(own, [one]) == [0]
        [stat] = blue.stat(own, [one])
        assert (stat.miss, stat.size_bytes, stat.group) == (never, 0, 0)
    assert bytes(red.get_blocks(scope, [block])[0].data) == block.payload


def test_a_foreign_namespace_does_not_exist(red: Wire, blue: Wire, name: str, seed: int) -> None:
    """Goal: no answer says that another tenant has a name.

    Method: ask for red's namespace, and for a name that nobody has; compare every answer.
    """
    scope = red.create(name, TENSORS)
    block = scope.blocks(draw_tokens(16, seed), [draw_bytes(4096, seed)])[0]
    red.put(scope, [block])

    def answers(wire: Wire, called: str) -> list[str]:
        out = []
        target = Scope(called, TENSORS)
        for call in (
            lambda: wire.open(called, TENSORS),
            lambda: wire.lookup(target, [block.key]),
            lambda: wire.get_blocks(target, [block]),
            lambda: wire.put(target, [block]),
            lambda: wire.delete(target, [block]),
            lambda: wire.stat(target, [block]),
            lambda: wire.pin(target, [block]),
        ):
            with pytest.raises(KvorumError) as caught:
                call()
            out.append(f"{type(caught.value).__name__} {caught.value}".replace(called, "NAME"))
        return out

    foreign = answers(blue, name)
    assert foreign == answers(blue, f"{name}-nobody")
    assert {text.split()[0] for text in foreign} == {NamespaceNotFoundError.__name__}


def test_lists_and_counters_are_ones_own(red: Wire, blue: Wire, name: str, seed: int) -> None:
    """Goal: neither names nor numbers of a tenant reach another.

    Method: red makes a namespace and works in it; blue's list, and blue's view of the node, do not
    have the namespace, and blue's own numbers do not move.
    """
    mine = blue.create(f"{name}-blue", TENSORS)
    before = {n.name: n.SerializeToString() for n in blue.status().namespaces}
    scope = red.create(f"{name}-red", TENSORS)
    block = scope.blocks(draw_tokens(16, seed), [draw_bytes(4096, seed)])[0]
    red.put(scope, [block])
    red.lookup(scope, [block.key])

    request = namespace_pb2.ListNamespacesRequest(context=request_context())
    with typed(blue.address):
        listed = blue.namespaces.ListNamespaces(
            request, timeout=CALL_S, metadata=blue.metadata
        ).namespaces
    assert mine.name in {one.name for one in listed}
    assert scope.name not in {one.name for one in listed}
    assert {one.tenant for one in listed} == {"blue"}
    after = {n.name: n.SerializeToString() for n in blue.status().namespaces}
    assert after == before
    [own] = [n for n in red.status().namespaces if n.name == scope.name]
    assert (own.blocks, own.lookup_hits) == (1, 1)


def test_a_quota_is_ones_own(shared: LocalCluster, connect: Connect, name: str, seed: int) -> None:
    """Goal: who stores much evicts their own blocks, and never another's.

    Method: a namespace of 1 MiB takes four; the other tenant's prompt stays. Pinned to its quota,
    the next store is refused as QUOTA, and unpinned it succeeds.
    """
    kept = connect(shared.endpoints, name, token=BLUE)
    prompt = Prompt.draw(4, seed)
    store(kept, prompt)
    limited = connect(
        shared.endpoints, name, OPAQUE, token=RED, policy=NamespacePolicy(quota_bytes=MIB)
    )
    tokens = [draw_tokens(16, seed, i) for i in range(64)]
    for one in tokens:
        assert limited.store(one, [draw_bytes(64 << 10, seed)], deadline_s=PATIENCE_S).stored
    status = next(iter(limited.status()))
    [use] = [use for use in status.namespaces if use.name == name]
    assert 0 < use.used_bytes <= MIB
    assert same_kv(load(kept, prompt.tokens), prompt)

    pinned = [one for one in tokens if limited.pin(one)]
    refused = limited.store(draw_tokens(16, seed, 99), [bytes(64 << 10)], deadline_s=1)
    assert [type(error) for error in refused.errors] == [QuotaError]
    assert pinned
    for one in pinned:
        assert limited.unpin(one) == 1
    again = limited.store(draw_tokens(16, seed, 99), [bytes(64 << 10)], deadline_s=PATIENCE_S)
    assert again.stored == 1


@pytest.mark.parametrize("token", [None, "wrong-token-of-nobody", RED + "x", RED[:-1], ""])
def test_a_wrong_token_is_a_typed_error(
    shared: LocalCluster, name: str, seed: int, token: str | None
) -> None:
    """Goal: who is nobody gets nothing, by type. Method: no token, and tokens that nobody has."""
    with Wire(shared.endpoints[0], token) as wire:
        with pytest.raises(UnauthenticatedError) as caught:
            wire.create(name, TENSORS)
        assert caught.value.field == "authorization"
        assert RED not in str(caught.value)
        with pytest.raises(UnauthenticatedError):
            wire.lookup(Scope(name, TENSORS), [draw_bytes(64, seed)])


def test_a_client_with_a_wrong_token_is_told(
    shared: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a worker with a wrong token fails loudly where it may, and computes where it must not.

    Method: connect raises; a lookup is a miss with the reason DENIED.
    """
    client = connect(shared.endpoints, name, token="nobody-has-this-token")  # noqa: S106
    with pytest.raises(UnauthenticatedError):
        client.connect()
    hit = client.lookup(draw_tokens(32, seed), budget_s=PATIENCE_S)
    assert (hit.tokens, hit.reason) == (0, MissReason.DENIED)


def test_a_tenant_is_neither_a_peer_nor_an_operator(
    shared: LocalCluster, red: Wire, name: str
) -> None:
    """Goal: roles do not mix. Method: a tenant drains and replicates, a peer makes a namespace."""
    with pytest.raises(PermissionDeniedError), typed(red.address):
        red.cluster.DrainNode(
            cluster_pb2.DrainNodeRequest(context=request_context()),
            timeout=CALL_S,
            metadata=red.metadata,
        )
    with pytest.raises(PermissionDeniedError), typed(red.address):
        ReplicationServiceStub(red.channel).Hello(
            replication_pb2.HelloRequest(context=request_context()),
            timeout=CALL_S,
            metadata=red.metadata,
        )
    peer = ClusterFile.parse(shared.cluster_file.read_text()).peer_token
    with Wire(shared.endpoints[0], peer) as wire, pytest.raises(PermissionDeniedError):
        wire.create(name, TENSORS)
