"""Prober: asks doubtful nodes whether they live, so that no caller has to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NoReturn

from kvorum.client.caller import Caller, request_context
from kvorum.core.errors import DeadlineError, KvorumError, UnavailableError
from kvorum.placement import ClusterMap, Member
from kvorum.v1 import cluster_pb2

_TICK_S: Final = 0.02


class Prober:
    """Probes the nodes whose breakers want it.

    Args:
        caller: calls nodes, and knows their health.
        timeout_s: seconds that a probe may take.
    """

    def __init__(self, caller: Caller, timeout_s: float) -> None:
        self._caller = caller
        self._timeout_s = timeout_s

    async def run(
        self, group: asyncio.TaskGroup, nodes: Callable[[], ClusterMap | None]
    ) -> NoReturn:
        """Probe until cancelled.

        Args:
            group: runs the probes, each node's beside the others'.
            nodes: returns the members as they are known now.
        """
        health = self._caller.health
        while True:
            await asyncio.sleep(_TICK_S)
            cluster_map = nodes()
            if cluster_map is None:
                continue
            due = set(health.probes_due(time.monotonic()))
            for member in cluster_map.members:
                if member.name in due:
                    health.of(member.name).breaker.probe_started()
                    group.create_task(self._probe(member))

    async def _probe(self, member: Member) -> None:
        health = self._caller.health
        try:
            answer = await self._caller.anonymous(
                member.name,
                self._caller.link(member).cluster.GetTopology,
                cluster_pb2.GetTopologyRequest(context=request_context(b"")),
                self._timeout_s,
                wait_for_ready=True,
            )
            health.answered(member.name, answer.answerer)
        except KvorumError as error:
            health.probed(member.name, time.monotonic(), answered=False)
            if isinstance(error, DeadlineError | UnavailableError):
                # Its connections may be black holes that no packet will ever end.
                await self._caller.pool.drop(member.address)
        else:
            health.probed(member.name, time.monotonic(), answered=True)
