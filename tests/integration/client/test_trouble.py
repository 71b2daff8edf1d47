"""Lookups and fetches in trouble: another zone answers, in time, or the miss says why."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from kvorum.client import ClientSettings, MissReason
from kvorum.core.errors import (
    InternalError,
    KvorumError,
    MapMismatchError,
    OverloadedError,
)
from kvorum.v1 import common_pb2
from kvorum.v1.frames import Frame
from tests.integration.client.conftest import PATIENT, Case, Connect
from tests.integration.client.lying_cluster import LyingCluster, lying_cluster
from tests.integration.client.lying_node import CHUNK_BYTES, HANG, Message
from tests.integration.support.values import draw_bytes

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


def name_of(error: KvorumError) -> str:
    return type(error).__name__


@pytest.mark.parametrize("hung", [["Get"], ["Get", "Lookup", "GetTopology"]], ids=["get", "node"])
async def test_a_fetch_leaves_a_hung_node_in_time(
    cluster: LyingCluster, connect: Connect, hung: list[str]
) -> None:
    client, case = await connect(cluster, settings=QUICK), Case(6)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    hit = await case.find(client)
    cluster.node("a").faults.hung.update(hung)
    started = time.monotonic()
    fetched = await client.fetch(hit)
    assert time.monotonic() - started < WITHIN_S
    assert case.is_prefix(fetched, 6)


async def test_a_node_that_stalled_once_is_asked_after_the_others(
    cluster: LyingCluster, connect: Connect
) -> None:
    """A second fetch, a lookup and a store lose no time with it, though it is not known dead."""
    settings = replace(QUICK, probe_timeout_s=20.0, hedge_budget=0.0, hedge_burst=0)
    client, case = await connect(cluster, settings=settings), Case(4)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    hit = await case.find(client)
    node = cluster.node("a")
    node.faults.hung.update({"Get", "Lookup", "Put", "GetTopology"})
    assert case.is_prefix(await client.fetch(hit), 4)
    before = node.calls["Get"] + node.calls["Lookup"] + node.calls["Put"]
    assert case.is_prefix(await client.fetch(hit), 4)
    assert (await client.lookup(case.tokens)).tokens == 64
    new = Case(2, seed=9)
    assert (await client.store(new.tokens, new.data)).stored == 2
    assert node.calls["Get"] + node.calls["Lookup"] + node.calls["Put"] == before
    assert client.stats.breaker_opens == 0


async def test_a_stream_that_stalls_goes_on_elsewhere(
    cluster: LyingCluster, connect: Connect
) -> None:
    """What had arrived is kept; only the rest comes from another zone."""
    client, case = await connect(cluster, settings=QUICK), Case(6)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    hit = await case.find(client)

    def stall(messages: list[Message], bad: int) -> list[Message | bytes]:
        kept = [m for m in messages if m.head.chunks[0].item < bad]
        return [*kept, HANG]

    cluster.node("a").faults.lie, cluster.node("a").faults.victim = stall, hit.blocks[4].key
    started = time.monotonic()
    fetched = await client.fetch(hit)
    assert time.monotonic() - started < WITHIN_S
    assert case.is_prefix(fetched, 6)
    others = sum(fetched.bytes_by_zone.get(zone, 0) for zone in "bc")
    assert others == sum(len(data) for data in case.data[4:])


async def test_two_answers_never_write_to_one_block(
    cluster: LyingCluster, connect: Connect
) -> None:
    """A hedge begins a block, the first node brings it, then the hedge goes on with bad bytes.

    The first node holds the second block back until then, so that the fetch still runs.
    """
    settings = ClientSettings(lookup_budget_s=20, stall_s=10, hedge_fetch_s=0.02)
    client, case = await connect(cluster, settings=settings), Case(2)
    case.data = [draw_bytes(3 * CHUNK_BYTES, at) for at in range(2)]
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    hit = await case.find(client)

    def slow(messages: list[Message], _: int) -> list[Message | bytes | float]:
        return [0.15, *messages[:3], 0.4, *messages[3:]]

    def spoil(messages: list[Message], _: int) -> list[Message | bytes | float]:
        rotten = Frame(messages[1].head, memoryview(bytes(CHUNK_BYTES)))
        return [messages[0], 0.3, rotten, HANG]

    cluster.every(lambda faults: setattr(faults, "victim", hit.blocks[0].key))
    cluster.node("a").faults.lie = slow
    for zone in "bc":
        cluster.node(zone).faults.lie = spoil
    hedges = client.stats.hedges
    fetched = await client.fetch(hit, into=bytearray(6 * CHUNK_BYTES), deadline_s=2)
    assert client.stats.hedges == hedges + 1
    assert case.is_prefix(fetched, fetched.tokens // 16)


async def test_a_deadline_ends_a_fetch_with_what_has_arrived(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(6)
    await case.store(client)
    hit = await case.find(client)

    def stall(messages: list[Message], bad: int) -> list[Message | bytes]:
        kept = [m for m in messages if m.head.chunks[0].item < bad]
        return [*kept, messages[len(kept)], HANG]

    node = cluster.node("a")
    node.faults.lie, node.faults.victim = stall, hit.blocks[4].key
    into = bytearray(b"\xee" * sum(map(len, case.data)))
    started = time.monotonic()
    fetched = await client.fetch(hit, into=into, deadline_s=0.5)
    assert 0.5 <= time.monotonic() - started < 0.5 + WITHIN_S
    assert case.is_prefix(fetched, 4)
    assert fetched.reason is MissReason.TIMEOUT
    assert not any(into[sum(len(data) for data in case.data[:4]) :])


@pytest.mark.parametrize("error", [OverloadedError("busy"), InternalError("defect")], ids=name_of)
async def test_a_fetch_that_one_zone_refuses_is_served_by_another(
    cluster: LyingCluster, connect: Connect, error: KvorumError
) -> None:
    client, case = await connect(cluster), Case(3)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    hit = await case.find(client)
    cluster.node("a").faults.errors["Get"] = error
    assert case.is_prefix(await client.fetch(hit), 3)
    assert client.stats.failovers == 1


async def test_a_block_that_was_evicted_meanwhile_comes_from_another_zone(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(3)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"))
    hit = await case.find(client)
    del cluster.node("a").blocks[hit.blocks[1].key]
    fetched = await client.fetch(hit)
    assert case.is_prefix(fetched, 3)
    del cluster.node("b").blocks[hit.blocks[1].key]
    short = await client.fetch(hit)
    assert case.is_prefix(short, 1)
    assert short.reason is MissReason.EVICTED


async def test_another_node_at_an_address_is_not_believed(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    cluster.node("a").faults.name = "n-b-0"
    hit = await client.lookup(case.tokens)
    assert hit.tokens == 32
    assert all("n-a-0" not in block.nodes for block in hit.blocks)


async def test_an_earlier_life_of_a_node_is_not_believed(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    await case.find(client)
    cluster.node("a").incarnation -= 1
    hit = await client.lookup(case.tokens)
    assert hit.tokens == 32
    assert all("n-a-0" not in block.nodes for block in hit.blocks)


async def test_the_reason_of_an_eviction_or_a_delete_is_passed_on(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(3)
    await case.store(client)
    hit = await case.find(client)
    key = hit.blocks[1].key
    for node in cluster.nodes.values():
        node.blocks.pop(key, None)
        node.missing[key] = common_pb2.MISS_REASON_EVICTED
    cluster.node("c").missing[key] = common_pb2.MISS_REASON_INVALIDATED
    short = await client.lookup(case.tokens)
    assert short.tokens == 16
    assert short.reason is MissReason.INVALIDATED
    assert client.stats.missing_blocks["INVALIDATED"] == 2


async def test_settings_that_wait_long_are_not_waited_for_when_an_answer_is_there(
    cluster: LyingCluster, connect: Connect
) -> None:
    """PATIENT has a budget of 20 s; a miss that all replicas agree on takes none of it."""
    client = await connect(cluster, settings=PATIENT)
    started = time.monotonic()
    hit = await client.lookup(Case(2).tokens)
    assert hit.reason is MissReason.NEVER_STORED
    assert time.monotonic() - started < PATIENT.lookup_budget_s / 2


async def test_a_busy_node_is_asked_again_before_a_fetch_is_given_up(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(3)
    await case.store(client)
    hit = await case.find(client)
    node = cluster.node("a")
    entered = node.enter

    async def busy_once(method: str, context: object) -> None:
        if node.calls["Get"] == 1:
            node.faults.errors.clear()
        await entered(method, context)

    node.faults.errors["Get"] = OverloadedError("busy", retry_after_s=0.01)
    node.enter = busy_once  # type: ignore[method-assign]  # heals itself
    assert case.is_prefix(await client.fetch(hit), 3)
    assert node.calls["Get"] == 2


async def test_what_arrived_before_the_map_changed_is_kept(connect: Connect) -> None:
    """One shard of two answers, the other has another map, and so has every node that is asked."""
    async with lying_cluster(zones="a", shards=2) as cluster:
        client = await connect(cluster, settings=QUICK)
        case = Case(128 * 4)
        case.data = [bytes([at % 256]) for at in range(128 * 4)]
        await case.store(client)
        hit = await client.lookup(case.tokens, budget_s=20)
        shards = [cluster.map.shard_of(block.slot) for block in hit.blocks]
        assert len(set(shards)) == 2, "the seed puts segments on both shards"
        kept = next(at for at, shard in enumerate(shards) if shard != shards[0])
        cluster.node("a", 1 - shards[0]).faults.errors["Get"] = MapMismatchError("other map")
        fetched = await client.fetch(hit)
        assert case.is_prefix(fetched, kept)
        assert fetched.reason is MissReason.STALE_EPOCH
