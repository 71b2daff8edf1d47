"""ReplicationService: how a pipe ends whose other side is there and does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kvorum.node.lifecycle import Identity, Lifecycle
from kvorum.node.membership import Membership
from kvorum.node.service import replication
from kvorum.placement import ClusterMap, Member, SlotMap
from kvorum.v1 import common_pb2, replication_pb2
from kvorum.v1.frames import Frame
from tests.unit.node.stand import stand

PATIENCE_S: Final = 20.0


async def messages() -> AsyncIterator[Frame[replication_pb2.ReplicateRequest]]:
    """Open a pipe and say that it lives."""
    sender = common_pb2.Answerer(node="n-b-0", zone="b", incarnation=1)
    yield Frame(replication_pb2.ReplicateRequest(open=replication_pb2.ReplicateOpen(sender=sender)))
    yield Frame(replication_pb2.ReplicateRequest())


async def test_a_peer_that_does_not_read_its_acknowledgements_loses_its_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = stand().driver
    members = tuple(
        Member(f"n-{zone}-0", zone, 0, f"127.0.0.1:{port}") for port, zone in enumerate("ab", 1)
    )
    lifecycle = Lifecycle(Identity(members[0], 1, bytes(32)), driver.clock)
    everyone: Any = SimpleNamespace(peer=lambda *_: None)
    desk: Any = SimpleNamespace(gatekeeper=everyone, driver=driver, lifecycle=lifecycle)
    cluster_map = ClusterMap("c", 1, members, SlotMap.even(1))
    nothing: Any = None
    service = replication.ReplicationService(
        desk, Membership(cluster_map, "n-a-0", driver.clock, 3_000), nothing
    )
    asked = asyncio.Event()

    async def write(_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    context: Any = SimpleNamespace(write=write)
    monkeypatch.setattr(replication, "SILENCE_S_MAX", 0.05)
    async with asyncio.timeout(PATIENCE_S) as patience:
        with pytest.raises(TimeoutError):
            await service.Replicate(messages(), context)
        assert asked.is_set()
    assert not patience.expired()
