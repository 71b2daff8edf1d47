"""Stores in trouble: blocks go to the replica that takes them, in time, or say why none does."""

from __future__ import annotations

import time

import pytest

from kvorum.client import ClientSettings, StoreOutcome
from kvorum.core.errors import (
    ArenaFullError,
    ChecksumError,
    DrainingError,
    ErrorCode,
    FingerprintError,
    InternalError,
    KvorumError,
    MapMismatchError,
    NamespaceNotFoundError,
    NotOwnerError,
    OverloadedError,
    PermissionDeniedError,
    QuotaError,
    UnavailableError,
)
from tests.integration.client.conftest import PATIENT, Case, Connect
from tests.integration.client.lying_cluster import LyingCluster, lying_cluster, restart, stop

QUICK = ClientSettings(
    lookup_budget_s=0.2,
    fetch_deadline_s=10.0,
    store_deadline_s=10.0,
    call_deadline_s=2.0,
    stall_s=0.6,
    probe_timeout_s=0.2,
)
WITHIN_S = 4.5
"""Far more than the failovers here take, and less than any deadline that would be waited for."""

ELSEWHERE: list[KvorumError] = [
    OverloadedError("busy"),
    ArenaFullError("full"),
    QuotaError("quota"),
    DrainingError("draining"),
    UnavailableError("broken"),
    InternalError("defect"),
    ChecksumError("flipped"),
    NotOwnerError("moved"),
    MapMismatchError("other map"),
]


def name_of(error: KvorumError) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", ELSEWHERE, ids=name_of)
async def test_a_store_goes_to_another_zone_when_one_refuses_it(
    cluster: LyingCluster, connect: Connect, error: KvorumError
) -> None:
    client, case = await connect(cluster), Case(4)
    cluster.node("a").faults.errors["Put"] = error
    result = await client.store(case.tokens, case.data)
    assert result.stored == 4
    assert result.zones != ("a",)
    assert len(result.zones) == 1


@pytest.mark.parametrize("error", ELSEWHERE[:3], ids=name_of)
async def test_only_the_blocks_that_were_refused_are_sent_again(
    cluster: LyingCluster, connect: Connect, error: KvorumError
) -> None:
    client, case = await connect(cluster), Case(4)
    cluster.node("a").faults.refuse = {1: error, 3: error}
    result = await client.store(case.tokens, case.data)
    assert result.stored == 4
    assert [block.zones == ("a",) for block in result.blocks] == [True, False, True, False]
    other = next(n for z in "bc" if (n := cluster.node(z)).openings)
    assert [item.index for item in other.openings[0].items] == [1, 3]


@pytest.mark.parametrize(
    "error", [FingerprintError("other model"), PermissionDeniedError("not yours")], ids=name_of
)
async def test_what_no_zone_would_take_is_refused_at_once(
    cluster: LyingCluster, connect: Connect, error: KvorumError
) -> None:
    client, case = await connect(cluster), Case(2)
    cluster.node("a").faults.refuse = {0: error}
    result = await client.store(case.tokens, case.data)
    assert [block.outcome for block in result.blocks] == [
        StoreOutcome.REFUSED,
        StoreOutcome.STORED,
    ]
    assert [e.code for e in result.errors] == [error.code]
    assert cluster.node("b").calls["Put"] == cluster.node("c").calls["Put"] == 0


async def test_when_every_zone_is_full_each_block_says_so(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(3)
    cluster.every(lambda f: f.errors.update(Put=ArenaFullError("full", limit="64 MiB")))
    result = await client.store(case.tokens, case.data)
    assert (result.stored, result.refused) == (0, 3)
    assert [error.code for error in result.errors] == [ErrorCode.ARENA_FULL]
    assert not result


async def test_a_draining_node_is_tried_last_for_a_while(
    cluster: LyingCluster, connect: Connect
) -> None:
    client = await connect(cluster)
    cluster.node("a").faults.errors["Put"] = DrainingError("draining")
    for seed in range(4):
        case = Case(1, seed)
        assert (await client.store(case.tokens, case.data)).stored == 1
    assert cluster.node("a").calls["Put"] == 1


async def test_a_node_that_takes_no_more_bytes_is_given_up(
    cluster: LyingCluster, connect: Connect
) -> None:
    """A hung node's buffers fill, and it never answers."""
    client, case = await connect(cluster, settings=QUICK), Case(2)
    case.data = [bytes(8 << 20)] * 2
    cluster.node("a").faults.hung.add("Put")
    started = time.monotonic()
    result = await client.store(case.tokens, case.data)
    assert time.monotonic() - started < WITHIN_S
    assert result.stored == 2
    assert result.zones != ("a",)


async def test_a_node_that_takes_all_bytes_and_never_answers_is_given_up(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster, settings=QUICK), Case(2)
    cluster.node("a").faults.hung.add("Put")
    started = time.monotonic()
    result = await client.store(case.tokens, case.data)
    assert time.monotonic() - started < WITHIN_S
    assert (result.stored, result.zones) == (2, ("b",)) or result.zones == ("c",)


async def test_an_answer_before_the_end_of_a_store_counts(
    cluster: LyingCluster, connect: Connect
) -> None:
    """A node that has all blocks already need not read them again."""
    client, case = await connect(cluster), Case(1)
    case.data = [bytes(6 << 20)]
    assert (await client.store(case.tokens, case.data)).stored == 1
    cluster.node("a").faults.stop_reading_after = 1
    result = await client.store(case.tokens, case.data)
    assert result.already_stored == 1
    assert result


async def test_a_map_that_changed_is_fetched_and_the_call_repeated(
    cluster: LyingCluster, connect: Connect
) -> None:
    """All nodes refuse the old digest; the new map is asked for, and the store succeeds."""
    client, case = await connect(cluster), Case(2)
    refreshes = client.stats.topology_refreshes
    refusals = 0
    for node in cluster.nodes.values():
        node.faults.errors["Put"] = MapMismatchError("other map", field="context.map_digest")
    node = cluster.node("a")
    entered = node.enter

    async def heal(method: str, context: object) -> None:
        nonlocal refusals
        if method == "GetTopology" and refusals == 0:
            refusals += 1
            cluster.every(lambda faults: faults.errors.clear())
        await entered(method, context)

    node.enter = heal  # type: ignore[method-assign]  # the nodes agree again when they are asked
    assert (await client.store(case.tokens, case.data)).stored == 2
    assert client.stats.topology_refreshes > refreshes


async def test_a_namespace_that_a_cluster_lost_is_made_again(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(2)
    gone = NamespaceNotFoundError("there is none")
    cluster.every(lambda faults: faults.errors.update(Put=gone))
    cluster.namespaces.clear()
    node = cluster.node("a")
    entered = node.enter

    async def heal(method: str, context: object) -> None:
        if method == "CreateNamespace":
            cluster.every(lambda faults: faults.errors.clear())
        await entered(method, context)

    for node in cluster.nodes.values():
        node.enter = heal  # type: ignore[method-assign]  # whichever node is asked to make it
    assert (await client.store(case.tokens, case.data)).stored == 2
    assert "n" in cluster.namespaces


async def test_a_node_that_comes_back_is_used_again(
    cluster: LyingCluster, connect: Connect
) -> None:
    """Stop one, wait for its breaker, start it again on its address: stores go there again."""
    client = await connect(cluster, settings=QUICK)
    node = cluster.node("a")
    await stop(node)
    for seed in range(5):
        case = Case(1, seed)
        assert (await client.store(case.tokens, case.data)).zones != ("a",)
    assert client.stats.breaker_opens == 1
    assert (await client.status())[0].error is not None
    await restart(node)
    end = time.monotonic() + 20
    zones: tuple[str, ...] = ()
    seed = 100
    while zones != ("a",):
        assert time.monotonic() < end
        seed += 1
        case = Case(1, seed)
        zones = (await client.store(case.tokens, case.data)).zones


async def test_a_busy_cluster_is_asked_again_before_a_store_is_given_up(
    connect: Connect,
) -> None:
    """The only replica refuses twice, and takes the blocks at the third attempt."""
    async with lying_cluster(zones="a") as cluster:
        client, case = await connect(cluster), Case(3)
        node = cluster.node("a")
        entered = node.enter

        async def busy_twice(method: str, context: object) -> None:
            if node.calls["Put"] == 2:
                node.faults.errors.clear()
            await entered(method, context)

        node.faults.errors["Put"] = OverloadedError("busy", retry_after_s=0.01)
        node.enter = busy_twice  # type: ignore[method-assign]  # heals itself
        assert (await client.store(case.tokens, case.data)).stored == 3
        assert node.calls["Put"] == 3


async def test_attempts_of_a_store_are_bounded(cluster: LyingCluster, connect: Connect) -> None:
    client, case = await connect(cluster), Case(1)
    cluster.every(lambda f: f.errors.update(Put=OverloadedError("busy", retry_after_s=0.01)))
    assert (await client.store(case.tokens, case.data)).refused == 1
    assert cluster.calls("Put") == PATIENT.attempts_max


async def test_what_was_stored_before_the_map_changed_counts(connect: Connect) -> None:
    """One shard of two takes its blocks, the other has another map and keeps it."""
    async with lying_cluster(zones="a", shards=2) as cluster:
        client, case = await connect(cluster), Case(128 * 4)
        case.data = [bytes([at % 256]) for at in range(128 * 4)]
        cluster.node("a", 1).faults.errors["Put"] = MapMismatchError("other map")
        result = await client.store(case.tokens, case.data, deadline_s=5)
        assert result.stored == len(cluster.node("a", 0).blocks) > 0
        assert result.refused == len(case.data) - result.stored > 0
        assert [error.code for error in result.errors] == [ErrorCode.MAP_MISMATCH]
