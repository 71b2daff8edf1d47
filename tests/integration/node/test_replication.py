"""Replication between real nodes: every copy where it belongs, whatever comes and goes."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kvorum.core import errors
from kvorum.node import Node
from kvorum.placement import ClusterFile
from kvorum.v1 import cache_pb2, cluster_pb2, common_pb2, frames, replication_pb2
from kvorum.v1.frames import Frame
from tests.integration.node.conftest import node_process
from tests.integration.node.rig import CALL_S, MIB, OPAQUE, Caller, Part, local_file, part, running

NAMES = ("kvorum-a-0", "kvorum-b-0", "kvorum-c-0")
DATA = random.Random(12).randbytes(3 * MIB)
STORED = cache_pb2.PUT_OUTCOME_STORED


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `check` holds."""
    async with asyncio.timeout(CALL_S):
        while not await check():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def callers(nodes: Sequence[Node]) -> AsyncIterator[list[Caller]]:
    made = [Caller(node.address) for node in nodes]
    try:
        yield made
    finally:
        for caller in made:
            await caller.channel.close()


async def open_on(made: list[Caller], replicas: int = 3) -> None:
    """Make a namespace and let every caller use it; return when every pipe is connected."""
    await made[0].create(replicas=replicas)
    for caller in made:
        caller.namespace = made[0].namespace

    async def connected() -> bool:
        states = [await caller.status() for caller in made]
        return all(peer.connected for state in states for peer in state.peers)

    await eventually(connected)


async def holds(caller: Caller, parts: Sequence[Part]) -> bool:
    """Whether a node holds all `parts`, with the right bytes."""
    got = await caller.get_parts(parts)
    assert all(bytes(one.data) in (two.data, b"") for one, two in zip(got, parts, strict=True))
    return not any(one.miss for one in got)


async def test_a_store_arrives_at_every_replica_and_a_delete_too() -> None:
    """Goal: blocks of every size are on all three members, with equal groups; so are deletes."""
    async with running(local_file(3), NAMES) as nodes, callers(nodes) as made:
        await open_on(made)
        parts = [part(DATA[:size]) for size in (1, 100, 70_000, MIB, 3 * MIB)]
        results = await made[0].put(parts)
        assert [r.outcome for r in results] == [STORED] * 5
        assert {r.replicas for r in results} == {3}
        for caller in made:
            await eventually(partial(holds, caller, parts))
            assert [g.group for g in await caller.get_parts(parts)] == [r.group for r in results]
        states = [await caller.status() for caller in made]
        assert [state.counters["replica_blocks"] for state in states] == [0, 5, 5]
        assert all(state.counters["under_replicated_copies"] == 0 for state in states)
        assert {(p.lag_entries, p.lag_bytes) for p in states[0].peers} == {(0, 0)}

        await made[1].on_blocks("Delete", parts[:2])

        async def gone() -> bool:
            got = [await caller.get_parts(parts[:2]) for caller in made]
            return all(
                one.miss == common_pb2.MISS_REASON_INVALIDATED for some in got for one in some
            )

        await eventually(gone)
        assert await holds(made[2], parts[2:])
        # An operator sees how close deletes are to being forgotten, and that nothing is left open.
        for state in [await caller.status() for caller in made]:
            shown = dict(state.counters)
            assert (shown["tombstones"], shown["tombstones_overflowed"]) == (2, 0)
            assert (shown["open_reads"], shown["open_writes"]) == (0, 0)
            assert shown["candidates"] == 3
            assert 0 < shown["largest_free_bytes"] <= state.arena_bytes - state.used_bytes


async def test_only_the_replicas_of_a_slot_get_its_blocks() -> None:
    """Goal: with two of three replicas each block is on exactly the two that the map names."""
    file = local_file(3)
    async with running(file, NAMES) as nodes, callers(nodes) as made:
        await open_on(made, replicas=2)
        parts = [part(DATA[i : i + 100]) for i in range(30)]
        homes = [[m.name for m in file.map.replicas(one.ref.slot, 2)] for one in parts]
        for one, home in zip(parts, homes, strict=True):
            await made[NAMES.index(home[0])].put([one])

        async def settled() -> bool:
            states = [await caller.status() for caller in made]
            return not any(peer.lag_entries for state in states for peer in state.peers)

        await eventually(settled)
        for name, caller in zip(NAMES, made, strict=True):
            got = await caller.get_parts(parts)
            assert [not g.miss for g in got] == [name in home for home in homes]


async def test_a_peer_that_is_away_gets_everything_when_it_comes() -> None:
    """Goal: what was stored and deleted without a member is there soon after it came back.

    Method: stop the second member, write, look at the pipe, start it as a new life.
    """
    file = local_file(2)
    async with running(file, NAMES[:1]) as [first], Caller(first.address) as caller:
        one, two = part(DATA[:MIB]), part(DATA[:100])
        async with running(file, NAMES[1:2]) as [second], Caller(second.address) as other:
            await open_on([caller, other], replicas=2)
            await caller.put([one])
            await eventually(lambda: holds(other, [one]))

        async def down() -> bool:
            topology = await caller.call(
                caller.cluster.GetTopology, cluster_pb2.GetTopologyRequest(context=caller.context)
            )
            [peer] = [m for m in topology.members if m.name == NAMES[1]]
            return bool(peer.state == cluster_pb2.MEMBER_STATE_DOWN)

        await eventually(down)
        assert (await caller.put([two]))[0].outcome == STORED
        await caller.on_blocks("Delete", [one])
        [peer] = (await caller.status()).peers
        assert (peer.connected, peer.lag_entries, peer.lag_bytes) == (False, 2, 100)
        assert (await caller.status()).counters["under_replicated_copies"] == 2

        async with (
            running(file, NAMES[1:2], incarnation=2_000) as [second],
            Caller(second.address) as other,
        ):
            other.namespace = caller.namespace
            await eventually(lambda: known(other))
            await eventually(lambda: holds(other, [two]))
            [got] = await other.get_parts([one])
            assert got.miss
            [peer] = (await caller.status()).peers
            assert (peer.connected, peer.lag_entries, peer.overflowed_entries) == (True, 0, 0)


async def known(caller: Caller) -> bool:
    """Whether the node knows any namespace yet."""
    return bool((await caller.status()).namespaces)


async def test_a_pipe_that_overflows_lets_the_oldest_go_and_counts_it() -> None:
    """Method: the only peer never starts; its pipe holds 2 MiB, and 4 MiB are stored."""
    settings = {"pipe_bytes_max": 2 * MIB, "window": MIB}
    async with (
        running(local_file(2), NAMES[:1], **settings) as [node],
        Caller(node.address) as caller,
    ):
        with pytest.raises(errors.UnavailableError):
            await caller.create(replicas=2)
        await caller.put([part(DATA[:MIB]) for _ in range(4)])
        state = await caller.status()
        [peer] = state.peers
        assert (peer.lag_entries, peer.lag_bytes, peer.overflowed_entries) == (2, 2 * MIB, 2)
        assert state.counters["under_replicated_copies"] == 4
        assert state.counters["replication_lost_entries"] == 2


async def test_a_drain_passes_on_what_the_peers_lack() -> None:
    """Goal: after a drain of the only member that took stores, the other has them all."""
    file = local_file(2)
    async with running(file, NAMES[:2]) as nodes, callers(nodes) as made:
        await open_on(made, replicas=2)
        parts = [part(DATA[i : i + MIB // 4]) for i in range(20)]
        await made[0].put(parts)
        assert await nodes[0].drain() == 0
        assert await holds(made[1], parts)

        async def seen_draining() -> bool:
            topology = await made[1].call(
                made[1].cluster.GetTopology,
                cluster_pb2.GetTopologyRequest(context=made[1].context),
            )
            return bool(topology.members[0].state == cluster_pb2.MEMBER_STATE_DRAINING)

        await eventually(seen_draining)


async def test_members_of_another_map_refuse_one_another() -> None:
    """Goal: two members whose files differ never exchange a block.

    Method: the second member's file has another epoch; both see each other go down.
    """
    file = local_file(2)
    other_file = replace(file, map=replace(file.map, epoch=2))
    async with (
        running(file, NAMES[:1]) as [first],
        running(other_file, NAMES[1:2]) as [second],
        Caller(first.address) as caller,
        Caller(second.address) as other,
    ):
        with pytest.raises(errors.UnavailableError):
            await caller.create(replicas=2)
        await caller.put([part(b"x")])
        await asyncio.sleep(0.3)
        for one in (caller, other):
            [peer] = (await one.status()).peers
            assert not peer.connected
        assert (await caller.status()).peers[0].lag_entries == 1
        assert not await known(other)


def hello(file: ClusterFile, **caller: object) -> replication_pb2.HelloRequest:
    """Return what a member says."""
    return replication_pb2.HelloRequest(
        context=common_pb2.RequestContext(protocol_version=1, map_digest=file.digest()),
        caller=common_pb2.Answerer(**{"node": NAMES[1], "zone": "b", "incarnation": 7, **caller}),  # type: ignore[arg-type]
    )


async def test_what_a_member_must_say() -> None:
    """Goal: a hello needs the map, a known name and a life that is not over."""
    file = local_file(2)
    async with (
        running(file, NAMES[:1]) as [node],
        Caller(node.address, token=file.peer_token) as peer,
    ):
        no_map = hello(file)
        no_map.context.map_digest = b""
        for request, kind, field in (
            (no_map, errors.MapMismatchError, "context.map_digest"),
            (hello(file, node="stranger"), errors.PermissionDeniedError, "caller.node"),
            (hello(file, node=NAMES[0]), errors.PermissionDeniedError, "caller.node"),
            (hello(file, incarnation=0), errors.InvalidArgumentError, "caller.incarnation"),
        ):
            with pytest.raises(kind) as caught:
                await peer.call(peer.replication.Hello, request)
            assert caught.value.field == field
        answer = await peer.call(peer.replication.Hello, hello(file))
        assert answer.answerer.node == NAMES[0]
        with pytest.raises(errors.IncarnationError) as ghost:
            await peer.call(peer.replication.Hello, hello(file, incarnation=6))
        assert ghost.value.limit == "at least 7"


def opening(
    file: ClusterFile, incarnation: int = 7, receiver: int = 0
) -> replication_pb2.ReplicateRequest:
    """Return how a member opens a pipe."""
    return replication_pb2.ReplicateRequest(
        open=replication_pb2.ReplicateOpen(
            context=common_pb2.RequestContext(
                protocol_version=1, map_digest=file.digest(), incarnation=receiver
            ),
            sender=common_pb2.Answerer(node=NAMES[1], zone="b", incarnation=incarnation),
        )
    )


async def open_pipe(
    peer: Caller, file: ClusterFile, *, incarnation: int = 7, receiver: int = 0
) -> object:
    """Open a pipe as a member, say nothing, and return the first answer or the error."""
    call = frames.replicate_frames(peer.channel)(metadata=peer.metadata, timeout=CALL_S)
    try:
        await call.write(Frame(opening(file, incarnation, receiver)))
        await call.write(Frame(replication_pb2.ReplicateRequest()))
        return await call.read()
    except grpc.aio.AioRpcError as error:
        return peer.error(error)
    finally:
        call.cancel()


async def test_a_peer_that_breaks_off_in_mid_block_leaves_nothing() -> None:
    """Method: speak as a member, send half a block, and hang up."""
    file = local_file(2)
    async with (
        running(file, NAMES[:1]) as [node],
        Caller(node.address, token=file.peer_token) as peer,
        Caller(node.address) as tenant,
    ):
        with pytest.raises(errors.UnavailableError):
            await tenant.create(replicas=2)
        one = part(DATA[:1_000])
        call = frames.replicate_frames(peer.channel)(metadata=peer.metadata, timeout=CALL_S)
        begun = opening(file)
        begun.entries.add(
            sequence=1,
            tenant="default",
            namespace="ns",
            fingerprint_digest=OPAQUE.digest(),
            block=one.ref,
            parent=one.parent,
            group=7,
            clock=1 << 16,
            parts=[
                replication_pb2.ReplicatePart(
                    frame_sizes=one.item.frame_sizes, frame_crc32c=one.item.frame_crc32c
                )
            ],
        )
        await call.write(Frame(opening(file)))
        begun.ClearField("open")
        begun.chunks.add(sequence=1, part=0, offset=0, length=500)
        await call.write(Frame(begun, memoryview(DATA[:500])))
        answer: Any = await call.read()
        assert (answer.acknowledged_sequence, list(answer.refused_sequences)) == (0, [])
        status = node._driver.engine.status
        assert status().open_writes == 1
        assert (await tenant.status()).answerer.staleness_ms > 0
        call.cancel()

        async def ended() -> bool:
            return status().open_writes == 0

        await eventually(ended)
        assert status().used_bytes == 0
        assert (await tenant.status()).answerer.staleness_ms == 0


async def test_what_was_under_way_when_a_peer_died_is_sent_to_its_next_life(
    tmp_path: Path,
) -> None:
    """Method: stop the peer, store, kill it with the block unacknowledged, and start it again."""
    file = local_file(2)
    flags = ("--memory", "16MiB")
    async with running(file, NAMES[:1]) as [node], Caller(node.address) as caller:
        one = part(DATA[: MIB // 2])
        with node_process(tmp_path, file, flags, name=NAMES[1]) as first:
            async with Caller(first.address) as other:
                await open_on([caller, other], replicas=2)
            first.popen.send_signal(signal.SIGSTOP)
            await caller.put([one])
        [peer] = (await caller.status()).peers
        assert peer.lag_entries == 1
        with node_process(tmp_path, file, flags, name=NAMES[1]) as second:
            async with Caller(second.address) as other:
                other.namespace = caller.namespace
                await eventually(partial(known, other))
                await eventually(partial(holds, other, [one]))


async def test_a_pipe_is_fenced_by_incarnations() -> None:
    """Goal: a sender of an earlier life, and one that means an earlier life of the receiver."""
    file = local_file(2)
    async with (
        running(file, NAMES[:1]) as [node],
        Caller(node.address, token=file.peer_token) as peer,
    ):
        await peer.call(peer.replication.Hello, hello(file))
        answer = await open_pipe(peer, file, receiver=1_000)
        assert isinstance(answer, replication_pb2.ReplicateResponse)
        for wrong in (
            await open_pipe(peer, file, receiver=999),
            await open_pipe(peer, file, incarnation=6),
        ):
            assert type(wrong) is errors.IncarnationError, wrong
