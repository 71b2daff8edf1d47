"""Runs one node in this process until it is told to end: where time and births are drawn."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from typing import Final, Self

from kvorum.node import heap
from kvorum.node.clock import Clock
from kvorum.node.config import NodeConfig
from kvorum.node.server import Node
from kvorum.placement import ClusterFile

_LOG: Final = logging.getLogger(__name__)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(
    config: NodeConfig,
    cluster_file_text: str,
    *,
    ready: Callable[[str, str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and end. A second signal ends it at once.

    Args:
        config: the node's settings.
        cluster_file_text: text of the cluster file.
        ready: called with the node's name and address when it serves.

    Raises:
        InvalidArgumentError: a setting or the cluster file is wrong.
        UnavailableError: the address cannot be had.
    """
    cluster = ClusterFile.parse(cluster_file_text)
    heap.prepare()
    asyncio.run(_serve(config, cluster, ready))


def draw_incarnation(unix_ns: int) -> int:
    """Return a birth number that is greater than that of any life born a millisecond before."""
    return unix_ns >> 20


class _Signals:
    """SIGTERM and SIGINT as events, for as long as the context lasts."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _signalled(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _serve(
    config: NodeConfig, cluster: ClusterFile, ready: Callable[[str, str], None] | None
) -> None:
    node = Node(config, cluster, Clock(time.time_ns), draw_incarnation(time.time_ns()))
    with _Signals() as signals:
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(_end_on_signal(node, signals), name="signals")
            await node.serve(ready)
            ending.cancel()


async def _end_on_signal(node: Node, signals: _Signals) -> None:
    await signals.first.wait()
    try:
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(node.drain(), name="drain")
            hurried = group.create_task(signals.second.wait(), name="second signal")
            await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            hurried.cancel()
    finally:
        node.stop()
