"""Runs one node in this process until it is told to end: where time and births are drawn."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Final

from kvorum.node import heap
from kvorum.node.clock import Clock
from kvorum.node.config import NodeConfig
from kvorum.node.server import Node
from kvorum.placement import ClusterFile

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


async def _serve(
    config: NodeConfig, cluster: ClusterFile, ready: Callable[[str, str], None] | None
) -> None:
    node = Node(config, cluster, Clock(time.time_ns), draw_incarnation(time.time_ns()))
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, node.shut_down)
    try:
        await node.serve(ready)
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
