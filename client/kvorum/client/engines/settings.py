"""GeneratorSettings: what a generator may spend on the cache, frozen and checked."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSettings:
    """Bounds of what a generator may spend on the cache.

    Attributes:
        lookup_budget_s: seconds that a lookup may take; None for the client's own budget.
        lease_s: seconds for which found blocks are to stay readable until they are fetched.
        fetch_min_s: seconds that a fetch may always take.
        fetch_deadline_s: seconds that a fetch may take at most.
        fetch_share: share of the time to recompute a prefix that its fetch may take, above 0 and
            at most 1: by so much can a cluster that fails in the middle of a fetch delay a prompt.
        store_generated: whether full blocks that hold generated tokens are stored too, for
            conversations that go on.
        store_deadline_s: seconds that one store in the background may take.
        store_jobs_max: prompts whose blocks may wait to be stored.
        store_bytes_max: bytes of KV that may be held for that.

    Raises:
        InvalidArgumentError: a value is out of its range.
    """

    lookup_budget_s: float | None = None
    lease_s: float = limits.LEASE_S_DEFAULT
    fetch_min_s: float = 0.02
    fetch_deadline_s: float = 5.0
    fetch_share: float = 0.25
    store_generated: bool = True
    store_deadline_s: float = 30.0
    store_jobs_max: int = 8
    store_bytes_max: int = 1 << 30

    def __post_init__(self) -> None:
        bounds = {
            "lease_s": limits.LEASE_S_MAX,
            "fetch_deadline_s": limits.CALL_S_MAX,
            "fetch_min_s": self.fetch_deadline_s,
            "fetch_share": 1.0,
            "store_deadline_s": limits.CALL_S_MAX,
        }
        if self.lookup_budget_s is not None:
            bounds["lookup_budget_s"] = limits.CALL_S_MAX
        for name, high in bounds.items():
            value = getattr(self, name)
            if not 0 < value <= high:
                raise InvalidArgumentError(
                    f"{name} is {value!r}", field=f"settings.{name}", limit=f"above 0 to {high:g}"
                )
