"""Clusters for tests: real node processes, reached directly or through fault proxies."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvorum.cli import LocalCluster
from kvorum.cli.member_process import MemberProcess
from kvorum.cli.ports import free_ports
from kvorum.placement import SECRET_BYTES, ClusterFile, ClusterMap, Member
from tests.integration.support.proxy import FaultProxy, Proxies

MIB: Final = 1 << 20
START_S: Final = 60.0


def map_of(cluster: LocalCluster) -> ClusterMap:
    """Return the map that a cluster's members loaded."""
    return ClusterFile.parse(cluster.cluster_file.read_text()).map


def pid_of(cluster: LocalCluster, name: str) -> int:
    """Return the process id of a member that was started."""
    pid = cluster.process(name).pid
    if pid is None:
        raise AssertionError(f"{name} was never started")
    return pid


@dataclass(frozen=True, slots=True)
class ProxiedCluster:
    """A cluster whose members, clients and peers alike, meet only through fault proxies.

    Attributes:
        file: what the members loaded; the addresses in it are the proxies'.
        proxies: the proxy before each member, by name.
        processes: the member processes, by name.
    """

    file: ClusterFile
    proxies: dict[str, FaultProxy]
    processes: dict[str, MemberProcess]

    @property
    def members(self) -> tuple[Member, ...]:
        """All members."""
        return self.file.map.members

    @property
    def endpoints(self) -> tuple[str, ...]:
        """host:port of the proxy before every member."""
        return tuple(member.address for member in self.members)

    def pid(self, name: str) -> int:
        """Return the process id of a member."""
        pid = self.processes[name].pid
        if pid is None:
            raise AssertionError(f"{name} was never started")
        return pid

    def heal(self) -> None:
        """Let every proxy pass everything on."""
        for proxy in self.proxies.values():
            proxy.heal()


def new_file(zones: int, ports: list[int]) -> ClusterFile:
    """Return the file of an open cluster of one shard, with fresh secrets."""
    return ClusterFile.local(
        zones,
        1,
        ports,
        key_secret=secrets.token_bytes(SECRET_BYTES),
        peer_token=secrets.token_urlsafe(32),
        admin_token=secrets.token_urlsafe(32),
    )


@contextmanager
def node_process(
    name: str, cluster_file: Path, *, memory_bytes: int, listen: str = ""
) -> Iterator[MemberProcess]:
    """Run one node of a cluster file until the end of the context; it is not waited for."""
    flags = {
        "cluster": str(cluster_file),
        "name": name,
        "memory": str(memory_bytes),
        "parent-pid": str(os.getpid()),
    }
    if listen:
        flags["listen"] = listen
    command = [sys.executable, "-m", "kvorum.cli.main", "node"]
    command += [f"--{flag}={value}" for flag, value in flags.items()]
    process = MemberProcess(name, command, cluster_file.with_name(f"{name}.log"))
    process.start()
    try:
        yield process
    finally:
        process.resume()
        process.kill()


@contextmanager
def proxied_cluster(directory: Path, *, zones: int, memory_bytes: int) -> Iterator[ProxiedCluster]:
    """Run a cluster of one shard behind proxies until the end of the context."""
    listen_ports = free_ports(zones)
    with ExitStack() as stack:
        proxies = stack.enter_context(Proxies(*listen_ports))
        file = new_file(zones, [proxy.port for proxy in proxies.all])
        path = directory / "cluster.toml"
        path.write_text(file.render())
        processes = {
            member.name: stack.enter_context(
                node_process(
                    member.name, path, memory_bytes=memory_bytes, listen=f"127.0.0.1:{port}"
                )
            )
            for member, port in zip(file.map.members, listen_ports, strict=True)
        }
        deadline = time.monotonic() + START_S
        for process in processes.values():
            process.wait_ready(deadline)
        names = [member.name for member in file.map.members]
        yield ProxiedCluster(file, dict(zip(names, proxies.all, strict=True)), processes)
