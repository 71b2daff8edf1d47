"""Loopback ports for servers that are about to start.

A port that the kernel hands out (port 0) lies in the range from which it also numbers outgoing
connections, so that a node that restarts may find its port in use by some client. The ports here
lie below that range.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvorum.core.errors import UnavailableError

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 10_240
_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RANGE_DEFAULT: Final = 32_768
_TRIES_MAX: Final = 4_096


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports that nobody listens on at this moment.

    Raises:
        UnavailableError: so many could not be found.
    """
    found: list[int] = []
    random_ports = random.SystemRandom()
    with contextlib.ExitStack() as held:
        for _ in range(_TRIES_MAX):
            if len(found) == count:
                return found
            port = random_ports.randrange(_LOWEST, _highest())
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            if _binds(probe, port):
                found.append(port)
    raise UnavailableError(
        f"{count} free loopback ports were not found",
        field="port",
        limit=f"{_TRIES_MAX} tries",
    )


def taken_ports(ports: Sequence[int]) -> list[int]:
    """Return those of `ports` that cannot be bound on loopback now."""
    taken = []
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if not _binds(probe, port):
                taken.append(port)
    return taken


def _binds(probe: socket.socket, port: int) -> bool:
    # As a server does: connections of an earlier server that linger do not count.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((LOOPBACK, port))
        probe.listen(1)
    except OSError:
        return False
    return True


def _highest() -> int:
    """Return the first port that the kernel gives to outgoing connections."""
    try:
        first = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _RANGE_DEFAULT
    return first if first > _LOWEST + _TRIES_MAX else _RANGE_DEFAULT
