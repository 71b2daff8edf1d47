"""Lookups: the longest prefix that anyone knows, within the budget, and free when all is lost."""

from __future__ import annotations

import asyncio
import time

import pytest

from kvorum.client import AsyncClient, ClientSettings, MissReason
from kvorum.core.errors import (
    InvalidArgumentError,
    KvorumError,
    NamespaceConflictError,
    NamespaceNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProtocolVersionError,
    UnauthenticatedError,
    UnavailableError,
)
from tests.integration.client.conftest import EVERYWHERE, PATIENT, Case, Connect
from tests.integration.client.lying_cluster import LyingCluster, lying_cluster, stop
from tests.integration.support.values import OPAQUE, TENSORS, draw_tokens

BUDGET_S = 0.3
HEDGED = ClientSettings(
    lookup_budget_s=20.0, hedge_min_s=0.001, hedge_lookup_s=0.01, hedge_max_s=0.02
)


async def test_the_own_zone_is_asked_and_nobody_else(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(4)
    await case.store(client)
    hit = await case.find(client)
    assert cluster.node("a").calls["Lookup"] == 1
    assert cluster.calls("Lookup") == 1
    assert hit.reason is None
    assert {block.nodes for block in hit.blocks} == {("n-a-0",)}
    assert [lease.node for lease in hit.leases] == ["n-a-0"]
    assert hit.lease_until is not None
    assert 0 < hit.lease_until - time.monotonic() <= 10


async def test_zones_that_know_different_parts_add_up(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(6)
    await case.store(client)
    keys = [block.key for block in (await case.find(client)).blocks]
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    for at, key in enumerate(keys):
        for zone in {"a": "bc", "b": "ac", "c": "ab"}["aabbcc"[at]]:
            del cluster.node(zone).blocks[key]
    hit = await case.find(client)
    assert [block.nodes for block in hit.blocks] == [
        (f"n-{zone}-0",) for zone in ("a", "a", "b", "b", "c", "c")
    ]
    assert case.is_prefix(await client.fetch(hit), 6)


async def test_segments_on_several_shards_are_asked_in_parallel(connect: Connect) -> None:
    async with lying_cluster(zones="ab", shards=4) as cluster:
        client = await connect(cluster)
        case = Case(128 * 5)
        case.data = [b"x"] * len(case.data)
        await case.store(client)
        hit = await case.find(client)
        assert hit.tokens == len(case.tokens)
        shards = {cluster.map.shard_of(block.slot) for block in hit.blocks}
        assert cluster.calls("Lookup") == len(shards)
        assert cluster.calls("Get") == 0
        assert case.is_prefix(await client.fetch(hit), len(case.data))


async def test_a_late_node_costs_the_budget_and_no_more(
    cluster: LyingCluster, connect: Connect
) -> None:
    client = await connect(cluster)
    cluster.every(lambda faults: faults.hung.add("Lookup"))
    started = time.monotonic()
    hit = await client.lookup(draw_tokens(64, 1), budget_s=BUDGET_S)
    assert BUDGET_S <= time.monotonic() - started < 10 * BUDGET_S
    assert (hit.tokens, hit.reason) == (0, MissReason.TIMEOUT)


async def test_what_one_zone_found_before_the_budget_ended_is_a_hit(
    cluster: LyingCluster, connect: Connect
) -> None:
    """The own zone has half of the prefix; the others hang."""
    client, case = await connect(cluster), Case(4)
    await case.store(client)
    keys = [block.key for block in (await case.find(client)).blocks]
    del cluster.node("a").blocks[keys[2]]
    for zone in "bc":
        cluster.node(zone).faults.hung.add("Lookup")
    hit = await client.lookup(case.tokens, budget_s=BUDGET_S)
    assert (hit.tokens, hit.reason) == (32, MissReason.TIMEOUT)


async def test_a_slow_node_is_hedged(cluster: LyingCluster, connect: Connect) -> None:
    client, case = await connect(cluster, settings=HEDGED), Case(2)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    cluster.node("a").faults.hung.add("Lookup")
    async with asyncio.timeout(HEDGED.lookup_budget_s / 2):
        hit = await case.find(client)
    assert client.stats.hedges >= 1
    assert all("n-a-0" not in block.nodes for block in hit.blocks)


async def test_hedges_end_with_their_budget(cluster: LyingCluster, connect: Connect) -> None:
    settings = ClientSettings(
        lookup_budget_s=0.05,
        hedge_min_s=0.001,
        hedge_lookup_s=0.001,
        hedge_fetch_s=0.001,
        hedge_max_s=10.0,
        hedge_budget=0.0,
        hedge_burst=2,
        breaker_timeouts=1_000,
    )
    client, case = await connect(cluster, settings=settings), Case(1)
    cluster.every(lambda faults: faults.hung.add("Lookup"))
    for _ in range(6):
        await client.lookup(case.tokens)
    assert client.stats.hedges == 2
    assert client.stats.failovers == 0
    assert cluster.calls("Lookup") <= 6 + 2


async def test_without_a_hedge_to_spend_another_replica_is_asked_later(
    cluster: LyingCluster, connect: Connect
) -> None:
    settings = ClientSettings(
        lookup_budget_s=20, hedge_budget=0.0, hedge_burst=0, breaker_timeouts=1_000
    )
    client, case = await connect(cluster, settings=settings), Case(2)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("c"))
    for zone in "ab":
        cluster.node(zone).faults.hung.add("Lookup")
    async with asyncio.timeout(settings.lookup_budget_s / 2):
        hit = await case.find(client)
    assert hit.tokens == 32
    assert client.stats.hedges == 0
    assert client.stats.failovers >= 1


async def test_a_node_that_fails_is_replaced_at_once(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    cluster.node("a").faults.errors["Lookup"] = OverloadedError("busy")
    assert (await case.find(client)).tokens == 32


async def test_a_hung_node_is_skipped_once_a_probe_has_failed(
    cluster: LyingCluster, connect: Connect
) -> None:
    settings = ClientSettings(lookup_budget_s=0.05, breaker_timeouts=1, probe_timeout_s=0.1)
    client, case = await connect(cluster, settings=settings), Case(1)
    cluster.node("a").faults.hung.update({"Lookup", "GetTopology"})
    end = time.monotonic() + 20
    while client.stats.breaker_opens == 0:
        assert time.monotonic() < end
        await client.lookup(case.tokens)
    asked = cluster.node("a").calls["Lookup"]
    for _ in range(5):
        assert (await client.lookup(case.tokens)).reason is MissReason.NEVER_STORED
    assert cluster.node("a").calls["Lookup"] == asked


async def test_a_slow_cluster_is_not_taken_for_a_dead_one(
    cluster: LyingCluster, connect: Connect
) -> None:
    """Every lookup comes too late, probes are answered: patience finds the blocks all the same."""
    settings = ClientSettings(lookup_budget_s=0.02, breaker_timeouts=1, probe_timeout_s=10.0)
    client, case = await connect(cluster, settings=settings), Case(2)
    await case.store(client)
    cluster.every(lambda faults: faults.delays_s.update(Lookup=0.1))
    for _ in range(10):
        assert (await client.lookup(case.tokens)).reason is MissReason.TIMEOUT
    assert client.stats.breaker_opens == 0
    assert (await client.lookup(case.tokens, budget_s=20)).tokens == 32


async def test_a_dead_cluster_costs_nothing_once_that_is_known(
    cluster: LyingCluster, connect: Connect
) -> None:
    """Kill all; when every breaker is open a lookup with a budget of a minute returns at once."""
    client, case = await connect(cluster, settings=ClientSettings(backoff_max_s=1.0)), Case(2)
    for node in cluster.nodes.values():
        await stop(node)
    end = time.monotonic() + 20
    while client.stats.breaker_opens < 3:
        assert time.monotonic() < end
        await client.lookup(case.tokens)
    async with asyncio.timeout(20):
        for _ in range(100):
            hit = await client.lookup(case.tokens, budget_s=60)
            assert (hit.tokens, hit.reason) == (0, MissReason.NODE_DOWN)


async def test_a_cluster_that_never_lived_costs_nothing_after_the_first_attempt() -> None:
    tokens = draw_tokens(64, 1)
    async with AsyncClient("127.0.0.1:9", namespace="n", fingerprint=OPAQUE) as client:
        with pytest.raises(UnavailableError):
            await client.connect(timeout_s=0.5)
        async with asyncio.timeout(20):
            for _ in range(100):
                hit = await client.lookup(tokens, budget_s=60)
                assert hit.reason is MissReason.NODE_DOWN
        assert (await client.store(tokens, [b"x"] * 4)).refused == 4
        assert client.stats.lookups == 100 == client.stats.misses["NODE_DOWN"]


async def test_a_prompt_shorter_than_a_block_asks_nobody(
    cluster: LyingCluster, connect: Connect
) -> None:
    client = await connect(cluster)
    hit = await client.lookup(range(15))
    assert (hit.tokens, hit.reason, bool(hit)) == (0, None, False)
    assert cluster.calls("Lookup") == 0
    assert client.stats.misses == {"NO_BLOCK": 1}
    assert (await client.fetch(hit)).tokens == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionDeniedError("not yours"), MissReason.DENIED),
        (UnauthenticatedError("who"), MissReason.DENIED),
        (UnavailableError("down"), MissReason.NODE_DOWN),
    ],
)
async def test_errors_have_a_reason(
    cluster: LyingCluster, connect: Connect, error: KvorumError, reason: MissReason
) -> None:
    client = await connect(cluster)
    cluster.every(lambda faults: faults.errors.update(Lookup=error))
    hit = await client.lookup(draw_tokens(64, 1))
    assert (hit.tokens, hit.reason) == (0, reason)


@pytest.mark.parametrize(
    "error",
    [
        PermissionDeniedError("not yours"),
        UnauthenticatedError("who are you"),
        ProtocolVersionError("version 2"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_connect_says_what_a_retry_cannot_cure_at_once(
    cluster: LyingCluster, error: KvorumError
) -> None:
    cluster.every(lambda faults: faults.errors.update(GetNamespace=error))
    async with AsyncClient(cluster.endpoints, namespace="n", fingerprint=OPAQUE) as client:
        async with asyncio.timeout(20):
            with pytest.raises(type(error)):
                await client.connect(timeout_s=60)


async def test_connect_waits_for_a_cluster_that_is_coming(cluster: LyingCluster) -> None:
    cluster.every(lambda faults: faults.errors.update(GetTopology=UnavailableError("starting")))

    async def heal() -> None:
        await asyncio.sleep(0.2)
        cluster.every(lambda faults: faults.errors.clear())

    async with (
        AsyncClient(cluster.endpoints, namespace="n", fingerprint=OPAQUE) as client,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(heal())
        await client.connect(timeout_s=60)
        assert (await client.topology()).cluster == "lies"


async def test_one_good_endpoint_is_enough(cluster: LyingCluster) -> None:
    """A dead one, a hung one and a good one."""
    cluster.node("b").faults.hung.add("GetTopology")
    endpoints = ("127.0.0.1:9", cluster.node("b").member.address, cluster.node("c").member.address)
    async with AsyncClient(endpoints, namespace="n", fingerprint=OPAQUE) as client:
        await client.connect(timeout_s=20)


async def test_a_namespace_that_must_exist_is_not_made(cluster: LyingCluster) -> None:
    client = AsyncClient(cluster.endpoints, namespace="n", fingerprint=OPAQUE, create=False)
    async with client, asyncio.timeout(20):
        with pytest.raises(NamespaceNotFoundError):
            await client.connect(timeout_s=60)
        assert cluster.calls("CreateNamespace") == 0
        hit = await client.lookup(draw_tokens(64, 1))
        assert hit.reason is MissReason.NEVER_STORED


async def test_a_namespace_of_another_model_is_a_conflict(
    cluster: LyingCluster, connect: Connect
) -> None:
    await connect(cluster, OPAQUE)
    async with AsyncClient(cluster.endpoints, namespace="n", fingerprint=TENSORS) as client:
        with pytest.raises(NamespaceConflictError) as caught:
            await client.connect(timeout_s=20)
        assert caught.value.field == "fingerprint.model"
        hit = await client.lookup(draw_tokens(64, 1))
        assert (hit.tokens, hit.reason) == (0, MissReason.FINGERPRINT)


async def test_a_namespace_that_somebody_else_made_meanwhile_is_used(
    cluster: LyingCluster, connect: Connect
) -> None:
    """Method: it appears, with another policy, between the question for it and its making."""
    await connect(cluster)
    made = cluster.namespaces.pop("n")
    conflict = NamespaceConflictError("n exists with another policy", field="namespace.policy")
    cluster.every(lambda faults: faults.errors.update(CreateNamespace=conflict))
    entered = cluster.node("a").enter

    async def appear(method: str, context: object) -> None:
        if method == "CreateNamespace":
            cluster.namespaces["n"] = made
        await entered(method, context)

    cluster.node("a").enter = appear  # type: ignore[method-assign]  # it is asked first
    await connect(cluster)
    assert cluster.calls("CreateNamespace") > 1


async def test_a_stray_node_does_not_lead_the_client_away(
    cluster: LyingCluster, connect: Connect
) -> None:
    cluster.node("a").faults.digest = b"s" * 32
    client = await connect(cluster)
    assert (await client.topology()).map_digest == cluster.node("b").faults.digest


@pytest.mark.parametrize("tokens", [[], [-1], [2**32], [1.5], "text", [[1]], None], ids=str)
async def test_bad_tokens_are_refused_even_when_the_cluster_is_dead(tokens: object) -> None:
    async with AsyncClient("127.0.0.1:9", namespace="n", fingerprint=OPAQUE) as client:
        with pytest.raises(InvalidArgumentError) as caught:
            await client.lookup(tokens)  # type: ignore[arg-type]  # that is the point
        assert caught.value.field == "tokens"


async def test_two_clients_of_one_zone_share_nothing(
    cluster: LyingCluster, connect: Connect
) -> None:
    first = await connect(cluster)
    second = await connect(cluster, settings=PATIENT, zone="b", policy=EVERYWHERE)
    case = Case(1)
    await case.store(first)
    cluster.copy(cluster.node("a"), cluster.node("b"))
    assert (await case.find(second)).blocks[0].nodes == ("n-b-0",)
