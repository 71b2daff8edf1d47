"""ClientSettings: every deadline, bound and threshold of the client, frozen and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError

_MIB: Final = 1 << 20
_COUNTS: Final = {
    "breaker_failures": (1, 1_000),
    "breaker_timeouts": (1, 1_000),
    "channels_per_node": (1, 16),
    "attempts_max": (1, 16),
    "hedge_burst": (0, 1_000),
    "put_batch_bytes": (_MIB, 1 << 40),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How long the client waits, when it asks a second node, and when it stops asking one.

    Attributes:
        lookup_budget_s: seconds that a lookup may wait for the cluster.
        fetch_deadline_s: seconds that a fetch may take.
        store_deadline_s: seconds that a store may take.
        call_deadline_s: seconds that any other call may take.
        stall_s: seconds without progress after which a transfer goes on at another replica.
        attempts_max: times that replicas are asked for, or offered, one block of a fetch or store
            before it counts as missing or refused; a busy replica is asked again after the others.
        hedge_quantile: a node that is slower than this share of its answers is hedged.
        hedge_lookup_s: seconds before a lookup is hedged while the node's speed is unknown.
        hedge_fetch_s: seconds without a byte before a fetch is hedged, likewise.
        hedge_min_s: least seconds before a hedge.
        hedge_max_s: most seconds before a hedge; a lookup that waited so long asks another replica
            whether a hedge is paid for or not.
        hedge_budget: hedges for each first request, at most, over time.
        hedge_burst: hedges that may precede the requests that pay for them.
        breaker_failures: failures in a row that open a node's breaker.
        breaker_timeouts: answers in a row that came too late, or never, after which a probe
            decides.
        breaker_open_s: seconds between the opening of a breaker and its next probe.
        breaker_open_max_s: most seconds between two probes.
        probe_timeout_s: seconds that a probe may take.
        backoff_min_s: least seconds between two attempts to reach a cluster that is down.
        backoff_max_s: most seconds between two such attempts.
        channels_per_node: connections to each node that carry payload; calls without payload have
            one of their own, so that they never wait behind payload.
        put_batch_bytes: payload bytes of one stream of a store, at most; a stream carries at least
            one block.

    Raises:
        InvalidArgumentError: a value is out of its range, or two contradict each other.
    """

    lookup_budget_s: float = limits.LOOKUP_BUDGET_S_DEFAULT
    fetch_deadline_s: float = 10.0
    store_deadline_s: float = 30.0
    call_deadline_s: float = 5.0
    stall_s: float = 0.5
    attempts_max: int = limits.REPLICAS_MAX + 1
    hedge_quantile: float = 0.95
    hedge_lookup_s: float = 0.002
    hedge_fetch_s: float = 0.02
    hedge_min_s: float = 0.001
    hedge_max_s: float = 0.25
    hedge_budget: float = 0.05
    hedge_burst: int = 16
    breaker_failures: int = 3
    breaker_timeouts: int = 3
    breaker_open_s: float = 0.1
    breaker_open_max_s: float = 2.0
    probe_timeout_s: float = 1.0
    backoff_min_s: float = 0.05
    backoff_max_s: float = 2.0
    channels_per_node: int = 1
    put_batch_bytes: int = 64 * _MIB

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check every value, and the relations between them.

        Raises:
            InvalidArgumentError: see the class.
        """
        for field in fields(self):
            if field.name in _COUNTS:
                self._check_count(field.name, *_COUNTS[field.name])
            elif field.name in ("hedge_quantile", "hedge_budget"):
                self._check_number(field.name, 0.0, 1.0)
            else:
                self._check_number(field.name, 1e-6, 3_600.0)
        self._check_order("hedge_min_s", "hedge_lookup_s", "hedge_max_s")
        self._check_order("hedge_min_s", "hedge_fetch_s", "hedge_max_s")
        self._check_order("breaker_open_s", "breaker_open_max_s")
        self._check_order("backoff_min_s", "backoff_max_s")

    def _check_count(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidArgumentError(
                f"{name} is {value!r}", field=f"settings.{name}", limit=f"{low} to {high}"
            )

    def _check_number(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not low <= value <= high:
            raise InvalidArgumentError(
                f"{name} is {value!r}", field=f"settings.{name}", limit=f"{low:g} to {high:g}"
            )

    def _check_order(self, *names: str) -> None:
        values = [getattr(self, name) for name in names]
        if values != sorted(values):
            raise InvalidArgumentError(
                ", ".join(f"{name} is {getattr(self, name):g}" for name in names),
                field=f"settings.{names[0]}",
                limit=" <= ".join(names),
            )


DEFAULT_SETTINGS: Final = ClientSettings()
"""What a client does if it is told nothing else."""
