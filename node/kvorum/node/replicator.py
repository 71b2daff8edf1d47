"""Replicator: what is stored and deleted here goes to the other replicas of its slot."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from kvorum.node.channels import Channels
from kvorum.node.config import NodeConfig
from kvorum.node.driver import Driver
from kvorum.node.engine.events import Effect, ReplicateTombstone
from kvorum.node.engine.pipe import Pipe
from kvorum.node.lifecycle import Lifecycle
from kvorum.node.link import Link
from kvorum.node.membership import Membership
from kvorum.placement import ClusterMap

FLUSH_POLL_S: Final = 0.02
_WINDOW_ENTRIES: Final = 256


@dataclass(frozen=True, slots=True)
class PeerReport:
    """The pipe to one peer at one moment; see `kvorum.v1.PeerStatus`."""

    node: str
    zone: str
    connected: bool
    lag_entries: int
    lag_bytes: int
    lag_ms: int
    overflowed_entries: int
    refused_entries: int


class Replicator:
    """One link to each other member of this node's shard.

    Args:
        config: bounds of the pipes.
        cluster_map: who holds which slot.
        driver: reads blocks.
        channels: opens connections.
        lifecycle: who this node is.
        membership: who is up.
    """

    def __init__(
        self,
        config: NodeConfig,
        cluster_map: ClusterMap,
        driver: Driver,
        channels: Channels,
        lifecycle: Lifecycle,
        membership: Membership,
    ) -> None:
        own = lifecycle.identity.member
        self._map = cluster_map
        self._clock = driver.clock
        self._links = {
            peer.name: Link(peer, _pipe(config), channels, driver, lifecycle, membership)
            for peer in cluster_map.shard_members(own.shard)
            if peer != own
        }

    async def run(self) -> None:
        """Carry the history to every peer until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self._links.values():
                group.create_task(link.run(), name=f"link {link.peer.name}")

    def offer(self, effect: Effect) -> None:
        """Queue what the engine asks to be carried.

        A block goes to the members that hold its slot. A delete goes to every member of the shard:
        one that took a store in another's place holds the block, too.
        """
        if isinstance(effect, ReplicateTombstone):
            targets = self._map.shard_members(self._map.shard_of(effect.slot))
        else:
            targets = self._map.replicas(effect.slot, effect.replicas)
        for member in targets:
            link = self._links.get(member.name)
            if link is not None:
                link.offer(effect)

    async def flush(self, timeout_s: float) -> int:
        """Wait until every peer that is up has everything; return the entries that any lacks."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while any(len(link.pipe) and link.is_up for link in self._links.values()):
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            await asyncio.sleep(min(left_s, FLUSH_POLL_S))
        return sum(len(link.pipe) for link in self._links.values())

    def reports(self) -> list[PeerReport]:
        """Return the state of every pipe."""
        now_ms = self._clock.now_ms()
        reports = []
        for link in self._links.values():
            lag = link.pipe.lag(now_ms)
            reports.append(
                PeerReport(
                    node=link.peer.name,
                    zone=link.peer.zone,
                    connected=link.connected,
                    lag_entries=lag.entries,
                    lag_bytes=lag.bytes,
                    lag_ms=lag.ms,
                    overflowed_entries=link.pipe.overflowed,
                    refused_entries=link.pipe.refused,
                )
            )
        return reports


def _pipe(config: NodeConfig) -> Pipe:
    return Pipe(
        config.pipe_entries_max,
        config.pipe_bytes_max,
        window_entries=min(_WINDOW_ENTRIES, config.pipe_entries_max - 1),
        window_bytes=config.window,
    )
