"""NodeConfig: every setting of a node, checked as a whole before anything is built.

A setting has one name everywhere: `drain_s` in a TOML file, `--drain-s` as a flag,
`KVORUM_NODE_DRAIN_S` in the environment. `kvorum.node.settings` reads those three.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, shown
from kvorum.core.names import check_name
from kvorum.node.engine.allocator import GRANULE_BYTES
from kvorum.node.engine.eviction import POLICIES
from kvorum.placement import split_address

_MIB: Final = 1 << 20
_PARTS_MIN: Final = 4
"""Parts of the largest size that must fit in: what arrives may fill a quarter of the arena."""

MEMORY_MIN: Final = 1 * _MIB
HEARTBEAT_DEADLINE_S: Final = 1.0
"""Seconds that one heartbeat may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Settings of one node. Sizes are in bytes; a name that ends in `_s` is in seconds.

    Attributes:
        name: the member of the cluster file that this node is.
        listen: host:port to serve on; empty for the member's address.
        memory: size of the arena, a hard limit.
        part_max: the largest part that a store may bring; 0 for a quarter of the arena, at most
            64 MiB.
        eviction: name of the eviction policy.
        tls_cert: path of the certificate chain, PEM; with `tls_key` and `tls_ca` or not at all.
        tls_key: path of its private key.
        tls_ca: path of the authority whose certificates clients and peers must show.
        concurrent_calls_max: calls served at once.
        concurrent_gets_max: reads of payload served at once; each takes up to 3 MB of memory
            besides the arena.
        concurrent_puts_max: stores served at once; the same holds.
        call_s_max: what a call may take when its caller sets no earlier deadline.
        heartbeat_s: between two heartbeats to every other member.
        down_after_s: without an answer, after which a member counts as down.
        pipe_bytes_max: payload queued for one peer; the oldest is let go beyond.
        pipe_entries_max: entries queued for one peer.
        window: payload sent to one peer and not acknowledged yet.
        drain_s: what passing on to the peers may take at the end.
    """

    name: str
    listen: str = ""
    memory: int = 512 * _MIB
    part_max: int = 0
    eviction: str = "prefix-lru"
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    concurrent_calls_max: int = 1_024
    concurrent_gets_max: int = 32
    concurrent_puts_max: int = 32
    call_s_max: float = limits.CALL_S_MAX
    heartbeat_s: float = 1.0
    down_after_s: float = 3.0
    pipe_bytes_max: int = 256 * _MIB
    pipe_entries_max: int = 65_536
    window: int = 32 * _MIB
    drain_s: float = 10.0

    def __post_init__(self) -> None:
        self.validate()

    @property
    def tls(self) -> bool:
        """Whether both sides of every connection show certificates."""
        return bool(self.tls_cert)

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the arena: `memory`, rounded down to what it is divided into."""
        return self.memory - self.memory % GRANULE_BYTES

    @property
    def part_bytes_max(self) -> int:
        """Bytes of the largest part that a store may bring."""
        return self.part_max or min(self.memory // 4, limits.PART_BYTES_MAX)

    def validate(self) -> None:
        """Check every setting, and what holds between settings.

        Raises:
            InvalidArgumentError: a setting is out of range or contradicts another; `field` is the
                setting's name.
        """
        check_name(self.name, "name")
        self._check_ranges()
        self._check_listen()
        if self.eviction not in POLICIES:
            raise InvalidArgumentError(
                f"eviction is {shown(self.eviction)}",
                field="eviction",
                limit="one of " + ", ".join(sorted(POLICIES)),
            )
        self._check_tls()
        _check(self.concurrent_gets_max <= self.concurrent_calls_max, self, "concurrent_gets_max")
        _check(self.concurrent_puts_max <= self.concurrent_calls_max, self, "concurrent_puts_max")
        self._check_sizes()

    def _check_tls(self) -> None:
        given = [bool(path) for path in (self.tls_cert, self.tls_key, self.tls_ca)]
        if any(given) and not all(given):
            raise InvalidArgumentError(
                "TLS needs a certificate, its key and an authority",
                field=("tls_cert", "tls_key", "tls_ca")[given.index(False)],
                limit="all of tls_cert, tls_key and tls_ca, or none",
            )

    def _check_sizes(self) -> None:
        if self.memory < _PARTS_MIN * self.part_bytes_max:
            raise InvalidArgumentError(
                f"memory is {self.memory} bytes",
                field="memory",
                limit=f"at least {_PARTS_MIN} * part_max",
            )
        if self.down_after_s < self.heartbeat_s + HEARTBEAT_DEADLINE_S:
            raise InvalidArgumentError(
                f"down_after_s is {self.down_after_s}",
                field="down_after_s",
                limit=f"at least heartbeat_s + {HEARTBEAT_DEADLINE_S}: one heartbeat may be lost",
            )
        if self.pipe_bytes_max < self.window:
            raise InvalidArgumentError(
                f"pipe_bytes_max is {self.pipe_bytes_max}",
                field="pipe_bytes_max",
                limit="at least window",
            )

    def _check_ranges(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not low <= value <= high:
                raise InvalidArgumentError(
                    f"{name} is {value!r}", field=name, limit=f"{low} to {high}"
                )

    def _check_listen(self) -> None:
        if not self.listen:
            return
        host, _ = split_address(self.listen)
        if not self.tls and not _is_loopback(host):
            raise InvalidArgumentError(
                f"{self.listen} can be reached from other machines",
                field="listen",
                limit="a loopback address, or TLS",
            )


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "memory": (MEMORY_MIN, 1 << 50),
    "part_max": (0, limits.PART_BYTES_MAX),
    "concurrent_calls_max": (1, 65_536),
    "concurrent_gets_max": (1, 65_536),
    "concurrent_puts_max": (1, 65_536),
    "call_s_max": (0.01, limits.CALL_S_MAX),
    "heartbeat_s": (0.05, 60.0),
    "down_after_s": (0.05, 3_600.0),
    "pipe_bytes_max": (limits.FRAME_BYTES, 1 << 50),
    "pipe_entries_max": (2, 1 << 24),
    "window": (limits.FRAME_BYTES, 1 << 40),
    "drain_s": (0.0, 3_600.0),
}


def _check(holds: bool, config: NodeConfig, name: str) -> None:
    if not holds:
        raise InvalidArgumentError(
            f"{name} is {getattr(config, name)}", field=name, limit="at most concurrent_calls_max"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a host name may resolve to anything
