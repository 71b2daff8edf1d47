"""LocalSettings: the shape of a local cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError

PROCESSES_MAX: Final = 64
MEMORY_BYTES_DEFAULT: Final = 512 << 20
START_S_DEFAULT: Final = 60.0
DRAIN_S_DEFAULT: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Shape of a local cluster.

    Attributes:
        zones: zones, named a, b, c and so on; 1 to 16.
        shards: members of each zone; zones times shards is at most 64.
        memory_bytes: bytes of each node's arena.
        port: port of the first node, the others follow; 0 draws free ones.
        directory: where the cluster file and the logs go; None for a temporary one that is
            removed at the end.
        cluster_file: path of the cluster file; None for `cluster.toml` in the directory.
        start_s: seconds until every node must serve.
        drain_s: seconds that nodes may take to pass on what their peers lack when asked to end;
            5 s later they are killed.
        tenants: bearer token of every tenant by name; empty for one open tenant "default".
        node_flags: further flags of `kvorum node`, by name without the dashes.

    Raises:
        InvalidArgumentError: a number is out of its range.
    """

    zones: int = 3
    shards: int = 1
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    port: int = 0
    directory: Path | None = None
    cluster_file: Path | None = None
    start_s: float = START_S_DEFAULT
    drain_s: float = DRAIN_S_DEFAULT
    tenants: Mapping[str, str] = field(default_factory=dict, repr=False)
    node_flags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range("zones", self.zones, 1, limits.ZONES_MAX)
        _check_range("shards", self.shards, 1, PROCESSES_MAX // self.zones)
        if self.port:
            _check_range("port", self.port, 1024, 65_536 - self.zones * self.shards)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgumentError(f"{name} is {value}", field=name, limit=f"{low} to {high}")
