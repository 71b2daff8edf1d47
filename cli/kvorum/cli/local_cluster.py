"""LocalCluster: a whole cluster on this machine, each member in a process of its own.

It writes the cluster file with fresh secrets, starts the nodes, waits until they serve, hurts
them on request, and never leaves one behind: its end stops them, and a node whose parent
vanished ends by itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kvorum.cli.local_settings import LocalSettings
from kvorum.cli.member_process import MemberProcess, never
from kvorum.cli.ports import LOOPBACK, free_ports, taken_ports
from kvorum.cli.private_file import check_replaceable, write_private
from kvorum.cli.scratch import Scratch, sweep
from kvorum.core.errors import InvalidArgumentError, UnavailableError
from kvorum.placement import SECRET_BYTES, ClusterFile, ClusterMap, Member, Tenant

__all__ = ["LocalCluster", "LocalSettings"]

_LOG: Final = logging.getLogger(__name__)

LOG_BYTES_MAX: Final = 4 << 20
_PORT_DRAWS_MAX: Final = 3
_END_S: Final = 5.0
"""Seconds that the end of a node may take beside its drain."""


class LocalCluster:
    """A cluster of local processes, as a context manager.

    Args:
        settings: its shape.

    Example:
        >>> with LocalCluster(LocalSettings(zones=3)) as cluster:  # doctest: +SKIP
        ...     client = Client(cluster.endpoints, namespace="n", fingerprint=fingerprint)
    """

    def __init__(self, settings: LocalSettings | None = None) -> None:
        self.settings = settings or LocalSettings()
        self._map: ClusterMap | None = None
        self._processes: dict[str, MemberProcess] = {}
        self._scratch: Scratch | None = None
        self._cluster_file: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, zone by zone; none before the start."""
        return () if self._map is None else self._map.members

    @property
    def endpoints(self) -> tuple[str, ...]:
        """host:port of every member."""
        return tuple(member.address for member in self.members)

    @property
    def cluster_file(self) -> Path:
        """The cluster file that all members loaded.

        Raises:
            UnavailableError: the cluster was not started.
        """
        if self._cluster_file is None:
            raise UnavailableError("the cluster is not running")
        return self._cluster_file

    def process(self, name: str) -> MemberProcess:
        """Return the process of the member `name`.

        Raises:
            InvalidArgumentError: there is no such member.
        """
        try:
            return self._processes[name]
        except KeyError:
            raise InvalidArgumentError(
                f"{name!r} is no member", field="name", limit=", ".join(self._processes)
            ) from None

    def start(self, cancelled: Callable[[], bool] = never) -> None:
        """Start every member and wait until all serve; on any failure none is left.

        Args:
            cancelled: asked often; True gives the start up.

        Raises:
            InvalidArgumentError: a node does not accept its settings.
            UnavailableError: already started, a port is in use, or a node ended.
            DeadlineError: a node did not serve in time.
            CancelledError: `cancelled` said so.
        """
        if self._processes:
            raise UnavailableError("the cluster is running already")
        try:
            self._start(cancelled)
        except BaseException:
            self.stop()
            raise

    def _start(self, cancelled: Callable[[], bool]) -> None:
        settings = self.settings
        directory = settings.directory or self._temporary()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        deadline = time.monotonic() + settings.start_s
        for draw in range(1, _PORT_DRAWS_MAX + 1):
            ports = self._ports()
            self._found(directory, ports)
            try:
                self._launch(directory, deadline, cancelled)
            except UnavailableError:
                # Somebody else may have taken a port since it was found free.
                self._end_processes()
                if settings.port or draw == _PORT_DRAWS_MAX or not taken_ports(ports):
                    raise
                _LOG.info("ports taken, drawing others: draw=%d", draw)
            else:
                return

    def _temporary(self) -> Path:
        sweep()
        self._scratch = Scratch()
        return self._scratch.path

    def _ports(self) -> list[int]:
        count = self.settings.zones * self.settings.shards
        if not self.settings.port:
            return free_ports(count)
        ports = [self.settings.port + index for index in range(count)]
        taken = taken_ports(ports)
        if taken:
            raise UnavailableError(
                "already in use: " + ", ".join(f"{LOOPBACK}:{port}" for port in taken),
                field="port",
                limit=f"{count} free ports in a row, or 0 to draw free ones",
            )
        return ports

    def _found(self, directory: Path, ports: Sequence[int]) -> None:
        """Lay out the map on `ports` and write the cluster file."""
        file = ClusterFile.local(
            self.settings.zones,
            self.settings.shards,
            ports,
            key_secret=secrets.token_bytes(SECRET_BYTES),
            peer_token=secrets.token_urlsafe(32),
            admin_token=secrets.token_urlsafe(32),
        )
        tenants = tuple(
            Tenant(name, hashlib.sha256(token.encode()).hexdigest())
            for name, token in self.settings.tenants.items()
        )
        file = replace(file, tenants=tenants)
        self._map = file.map
        path = self.settings.cluster_file or directory / "cluster.toml"
        check_replaceable(path)
        self._cluster_file = path.absolute()
        write_private(self._cluster_file, file.render())

    def _launch(self, directory: Path, deadline: float, cancelled: Callable[[], bool]) -> None:
        for member in self.members:
            log = directory / f"{member.name}.log"
            process = MemberProcess(member.name, self._command(member), log)
            self._processes[member.name] = process
            process.start()
        for process in self._processes.values():
            process.wait_ready(deadline, cancelled)

    def _command(self, member: Member) -> list[str]:
        flags = {
            "cluster": str(self._cluster_file),
            "name": member.name,
            "memory": str(self.settings.memory_bytes),
            "drain-s": str(self.settings.drain_s),
            "parent-pid": str(os.getpid()),
            "log-bytes-max": str(LOG_BYTES_MAX),
            **self.settings.node_flags,
        }
        command = [sys.executable, "-m", "kvorum.cli.main", "node"]
        return command + [f"--{name}={value}" for name, value in flags.items()]

    def kill(self, name: str) -> None:
        """End a member at once (SIGKILL), as a crash would."""
        self.process(name).kill()

    def pause(self, name: str) -> None:
        """Stop a member (SIGSTOP): its connections stay open and nothing answers."""
        self.process(name).pause()

    def resume(self, name: str) -> None:
        """Let a paused member go on."""
        self.process(name).resume()

    def kill_zone(self, zone: str) -> tuple[str, ...]:
        """End every member of `zone` at once; return their names.

        Raises:
            InvalidArgumentError: there is no such zone.
        """
        names = tuple(member.name for member in self.members if member.zone == zone)
        if not names:
            zones = sorted({member.zone for member in self.members})
            raise InvalidArgumentError(f"{zone!r} is no zone", field="zone", limit=", ".join(zones))
        for name in names:
            self.kill(name)
        return names

    def restart(self, name: str) -> None:
        """Start a member again, after ending it if it runs, and wait until it serves.

        Raises:
            UnavailableError: it ended again.
            DeadlineError: it did not serve in time.
        """
        process = self.process(name)
        _end([process], self.settings.drain_s)
        process.start()
        process.wait_ready(time.monotonic() + self.settings.start_s)

    def stop(self, hurried: Callable[[], bool] = never) -> None:
        """End every member, then remove the temporary directory. A second call does nothing.

        Args:
            hurried: asked often; True kills what has not ended yet.
        """
        self._end_processes(hurried)
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _end_processes(self, hurried: Callable[[], bool] = never) -> None:
        _end(list(self._processes.values()), self.settings.drain_s, hurried)
        self._processes.clear()


def _end(
    processes: Sequence[MemberProcess], drain_s: float, hurried: Callable[[], bool] = never
) -> None:
    """Ask all to end, give them `drain_s` seconds together, and kill the rest."""
    try:
        for process in processes:
            process.ask_to_stop()
        deadline = time.monotonic() + drain_s + _END_S
        for process in processes:
            process.wait(deadline, hurried)
    finally:
        for process in processes:
            process.kill()
