"""Stores and fetches over real gRPC: what travels, in which order, and where it ends up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from kvorum.client import ClientSettings
from kvorum.client.tensors import Array
from kvorum.core.errors import InvalidArgumentError, OverloadedError
from kvorum.core.keys import chain
from kvorum.core.layout import BlockLayout
from kvorum.v1 import cache_pb2
from tests.integration.client.conftest import PATIENT, Case, Connect, draw_tensor
from tests.integration.client.lying_cluster import LyingCluster, lying_cluster
from tests.integration.client.lying_node import SALT
from tests.integration.support.values import OPAQUE, TENSORS, draw_bytes, draw_tokens

LAYOUT = BlockLayout.of(TENSORS)


async def test_a_store_announces_exactly_what_the_blocks_are(
    cluster: LyingCluster, connect: Connect
) -> None:
    client = await connect(cluster, TENSORS)
    tokens, kv = draw_tokens(16 * 3 + 5, 1), draw_tensor(3, 1)
    result = await client.store(tokens, kv)
    assert (result.stored, result.zones) == (3, ("a",))
    assert [block.index for block in result.blocks] == [0, 1, 2]
    assert {block.replicas for block in result.blocks} == {2}

    (opening,) = cluster.node("a").openings
    keys = chain(TENSORS, SALT, tokens)
    assert opening.condition == cache_pb2.PUT_CONDITION_IF_ABSENT
    assert opening.namespace.fingerprint_digest == TENSORS.digest()
    assert opening.context.map_digest == cluster.node("a").faults.digest
    for index, item in enumerate(opening.items):
        assert item.block.key == keys.keys[index]
        assert item.block.slot == keys.slot(index)
        assert item.parent == keys.parent(index)
        assert (item.index, item.part, item.parts) == (index, 0, 1)
        assert list(item.frame_sizes) == [LAYOUT.frame_bytes] * LAYOUT.layers
    stored = [cluster.node("a").blocks[key].data for key in keys.keys]
    assert stored == [block.tobytes() for block in LAYOUT.split(kv, 3)]


async def test_a_store_may_begin_behind_a_hit(cluster: LyingCluster, connect: Connect) -> None:
    client = await connect(cluster, TENSORS)
    tokens, kv = draw_tokens(16 * 4, 1), draw_tensor(4, 1)
    await client.store(tokens[:32], kv[:, :, :, :32])
    hit = await client.lookup(tokens)
    result = await client.store(tokens, kv[:, :, :, hit.tokens :], first_block=2)
    assert [block.index for block in result.blocks] == [2, 3]
    fetched = await client.fetch(await client.lookup(tokens))
    assert fetched.kv is not None
    assert fetched.kv.tobytes() == kv.tobytes()


async def test_a_store_of_no_block_is_empty(cluster: LyingCluster, connect: Connect) -> None:
    client = await connect(cluster, TENSORS)
    result = await client.store(range(20), draw_tensor(0, 1), first_block=1)
    assert result.blocks == ()
    assert result
    assert cluster.calls("Put") == 0


async def test_overwriting_is_asked_for(cluster: LyingCluster, connect: Connect) -> None:
    client, case = await connect(cluster), Case(1)
    await client.store(case.tokens, case.data, overwrite=True)
    assert cluster.node("a").openings[0].condition == cache_pb2.PUT_CONDITION_OVERWRITE


async def test_what_is_there_already_is_a_success(cluster: LyingCluster, connect: Connect) -> None:
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    result = await client.store(case.tokens, case.data)
    assert (result.stored, result.already_stored) == (0, 2)
    assert result
    assert client.stats.stored_blocks == {"STORED": 2, "ALREADY_STORED": 2}


async def test_large_stores_travel_in_batches(cluster: LyingCluster, connect: Connect) -> None:
    settings = ClientSettings(put_batch_bytes=1 << 20, lookup_budget_s=20)
    client, case = await connect(cluster, settings=settings), Case(7)
    case.data = [draw_bytes(400_000, at) for at in range(7)]
    await case.store(client)
    openings = cluster.node("a").openings
    assert [[item.index for item in opening.items] for opening in openings] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6],
    ]
    assert case.is_prefix(await client.fetch(await case.find(client)), 7)


async def test_more_blocks_than_a_request_may_name(connect: Connect) -> None:
    async with lying_cluster(zones="a") as cluster:
        client, case = await connect(cluster), Case(2_600)
        case.data = [at.to_bytes(2, "little") for at in range(2_600)]
        await case.store(client)
        hit = await case.find(client)
        assert case.is_prefix(await client.fetch(hit), 2_600)
        assert await client.pin(case.tokens) == 2_600
        assert len(await client.stat(case.tokens)) == 2_600
        assert await client.delete(case.tokens) == 2_600
        assert (await client.lookup(case.tokens)).tokens == 0


@pytest.mark.parametrize("kind", ["none", "array", "window", "scattered", "flat"])
async def test_a_tensor_comes_back_into_whatever_it_is_wanted_in(
    cluster: LyingCluster, connect: Connect, kind: str
) -> None:
    client = await connect(cluster, TENSORS)
    tokens, kv = draw_tokens(16 * 3, 1), draw_tensor(3, 1)
    await client.store(tokens, kv)
    hit = await client.lookup(tokens)
    long = list(kv.shape)
    long[3] += 20
    into: Array | bytearray | None = {
        "none": None,
        "array": np.zeros_like(kv),
        "window": np.zeros(long, kv.dtype)[:, :, :, 7:-13],
        "scattered": np.zeros(kv.shape[::-1], kv.dtype).T,
        "flat": bytearray(kv.nbytes),
    }[kind]
    fetched = await client.fetch(hit, into=into)
    assert (fetched.tokens, fetched.reason) == (48, None)
    assert fetched.kv is not None
    assert fetched.kv.tobytes() == kv.tobytes()
    assert [bytes(b) for b in fetched.blocks] == [b.tobytes() for b in LAYOUT.split(kv, 3)]
    if isinstance(into, np.ndarray):
        assert into.tobytes() == kv.tobytes()
    assert fetched.bytes_by_zone == {"a": kv.nbytes}


@pytest.mark.parametrize("layers", [(0, 1), (1, 2), (0, 2)])
async def test_a_range_of_layers(
    cluster: LyingCluster, connect: Connect, layers: tuple[int, int]
) -> None:
    client = await connect(cluster, TENSORS)
    tokens, kv = draw_tokens(16 * 2, 1), draw_tensor(2, 1)
    await client.store(tokens, kv)
    hit = await client.lookup(tokens)
    begin, end = layers
    into = np.zeros_like(kv)
    fetched = await client.fetch(hit, into=into[begin:end], layers=layers)
    assert fetched.kv is not None
    assert fetched.kv.tobytes() == kv[begin:end].tobytes()
    assert into[begin:end].tobytes() == kv[begin:end].tobytes()
    assert not into[:begin].any()
    assert not into[end:].any()
    alone = await client.fetch(hit, layers=layers)
    assert alone.kv is not None
    assert alone.kv.tobytes() == kv[begin:end].tobytes()


async def test_a_fetch_reads_the_group_that_the_lookup_found(
    cluster: LyingCluster, connect: Connect
) -> None:
    """Another group of the same block, elsewhere, is no replacement: its parts must not mix."""
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    for key, block in cluster.node("a").blocks.items():
        cluster.node("b").blocks[key] = replace(block, group=block.group + 50)
    hit = await case.find(client)
    cluster.node("a").faults.errors["Get"] = OverloadedError("busy")
    fetched = await client.fetch(hit)
    assert fetched.tokens == 0
    assert client.stats.corrupt_blocks == 0


async def test_parts_need_a_writer_and_travel_as_parts(
    cluster: LyingCluster, connect: Connect
) -> None:
    two = replace(TENSORS, tp_size=2)
    kv = draw_tensor(1, 1)[:, :, :2]
    nameless = await connect(cluster, two, namespace="p", part=1)
    with pytest.raises(InvalidArgumentError) as caught:
        await nameless.store(draw_tokens(16, 1), kv)
    assert caught.value.field == "writer"
    assert cluster.calls("Put") == 0
    client = await connect(cluster, two, namespace="p", part=1, writer="engine-7")
    await client.store(draw_tokens(16, 1), kv)
    (opening,) = (opening for node in cluster.nodes.values() for opening in node.openings)
    assert opening.writer == "engine-7"
    assert (opening.items[0].part, opening.items[0].parts) == (1, 2)


async def test_calls_without_payload_go_to_every_replica(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(3)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("c"))
    hit = await case.find(client)
    assert await client.touch(hit, lease_s=3) == 3
    assert await client.pin(case.tokens) == 3
    assert [len(node.pinned) for node in cluster.nodes.values()] == [3, 0, 3]
    stats = await client.stat(case.tokens)
    assert [stat.zones for stat in stats] == [("a", "c")] * 3
    assert [stat.size_bytes for stat in stats] == [len(data) for data in case.data]
    assert await client.unpin(case.tokens) == 3
    assert not cluster.node("c").pinned
    assert await client.delete(case.tokens) == 3
    assert not cluster.node("a").blocks
    assert not cluster.node("c").blocks
    for method in ("Touch", "Pin", "Unpin", "Stat", "Delete"):
        assert [node.calls[method] for node in cluster.nodes.values()] == [1, 1, 1]


async def test_a_delete_that_reaches_one_replica_succeeds(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    for zone in "bc":
        cluster.node(zone).faults.errors["Delete"] = OverloadedError("busy")
    assert await client.delete(case.tokens) == 2
    cluster.node("a").faults.errors["Delete"] = OverloadedError("busy")
    with pytest.raises(OverloadedError):
        await client.delete(case.tokens)
    cluster.every(lambda faults: faults.errors.update(Pin=OverloadedError("busy")))
    with pytest.raises(OverloadedError):
        await client.pin(case.tokens)


async def test_a_touch_and_a_stat_never_raise_for_a_cluster_in_trouble(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    hit = await case.find(client)
    busy = OverloadedError("busy")
    cluster.every(lambda faults: faults.errors.update(Touch=busy, Stat=busy))
    assert await client.touch(hit) == 0
    assert [stat.reason is not None for stat in await client.stat(case.tokens)] == [True, True]


@pytest.mark.parametrize(
    "call",
    ["shape", "dtype", "count", "layers", "small", "first_block", "deadline", "lease", "hit"],
)
async def test_a_bad_argument_sends_nothing(
    cluster: LyingCluster, connect: Connect, call: str
) -> None:
    client = await connect(cluster, TENSORS, settings=PATIENT)
    other = await connect(cluster, OPAQUE, namespace="other")
    tokens, kv = draw_tokens(32, 1), draw_tensor(2, 1)
    await client.store(tokens, kv)
    hit = await client.lookup(tokens)
    before = {name: node.calls.copy() for name, node in cluster.nodes.items()}
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "shape": lambda: client.store(tokens, kv[:, :, :3]),
        "dtype": lambda: client.store(tokens, kv.astype(np.float32)),
        "count": lambda: other.store(tokens, [b"x"]),
        "layers": lambda: client.fetch(hit, layers=(0, 9)),
        "small": lambda: client.fetch(hit, into=bytearray(10)),
        "first_block": lambda: client.store(tokens, kv, first_block=3),
        "deadline": lambda: client.fetch(hit, deadline_s=-1),
        "lease": lambda: client.lookup(tokens, lease_s=100),
        "hit": lambda: other.fetch(hit),
    }
    with pytest.raises(InvalidArgumentError) as caught:
        await calls[call]()
    assert caught.value.field
    assert caught.value.limit
    assert {name: node.calls for name, node in cluster.nodes.items()} == before
