"""PrefixReader: the longest stored prefix of a prompt, read into host memory within a bound.

A read may never cost more than it can save: it gives up in a stated share of the time that the
model would take to compute the same tokens, as measured on the prompts before.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import torch

from kvorum.client.engines.kv_cache import CacheShape
from kvorum.client.engines.settings import GeneratorSettings
from kvorum.core.errors import KvorumError

if TYPE_CHECKING:
    from kvorum.client import Client, MissReason

_LOG: Final = logging.getLogger(__name__)

_PACE_TOKENS_MIN: Final = 32
_PACE_WEIGHT: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """What was read of a prompt.

    Attributes:
        kv: [layers, 2, kv_heads, tokens, head_size] in host memory; None if nothing was read.
        tokens: tokens of `kv`, whole blocks.
        reason: why it ends where it ends; None if every full block was read, or none was wanted.
        lookup_s: seconds that the lookup took.
        fetch_s: seconds that the fetch took.
        bytes_by_zone: bytes that were read, by the zone of the node that sent them.
    """

    kv: torch.Tensor | None = None
    tokens: int = 0
    reason: MissReason | None = None
    lookup_s: float = 0.0
    fetch_s: float = 0.0
    bytes_by_zone: Mapping[str, int] = field(default_factory=dict)


class Pace:
    """Seconds a token that the model's prefill takes: a moving average over long prefills."""

    def __init__(self) -> None:
        self._s_per_token: float | None = None

    def observe(self, tokens: int, seconds: float) -> None:
        """Note that computing `tokens` tokens took `seconds`; too few tokens say nothing."""
        if tokens < _PACE_TOKENS_MIN:
            return
        sample = seconds / tokens
        before = sample if self._s_per_token is None else self._s_per_token
        self._s_per_token = before + _PACE_WEIGHT * (sample - before)

    def seconds(self, tokens: int) -> float | None:
        """Return how long computing `tokens` tokens takes; None before the first observation."""
        return None if self._s_per_token is None else self._s_per_token * tokens


class PrefixReader:
    """Reads prefixes through a client; never raises for a cluster in trouble.

    Args:
        client: a client whose fingerprint fits `shape`.
        shape: what the model's cache holds.
        settings: bounds of what a read may cost.
    """

    def __init__(self, client: Client, shape: CacheShape, settings: GeneratorSettings) -> None:
        self.pace = Pace()
        self.failures: Counter[str] = Counter()
        self._client = client
        self._shape = shape
        self._settings = settings

    def read(self, tokens: npt.NDArray[np.uint32]) -> Prefix:
        """Look `tokens` up and fetch the longest prefix that the cluster holds."""
        started = time.perf_counter()
        try:
            hit = self._client.lookup(
                tokens, budget_s=self._settings.lookup_budget_s, lease_s=self._settings.lease_s
            )
        except KvorumError as error:
            return self._nothing("lookup", error, lookup_s=time.perf_counter() - started)
        looked_up = time.perf_counter()
        if not hit:
            return Prefix(reason=hit.reason, lookup_s=looked_up - started)
        kv = self._shape.buffer(hit.tokens)
        deadline_s = self.deadline_s(hit.tokens)
        try:
            fetched = self._client.fetch(hit, into=kv, deadline_s=deadline_s)
        except KvorumError as error:
            return self._nothing("fetch", error, lookup_s=looked_up - started)
        return Prefix(
            kv=kv[:, :, :, : fetched.tokens] if fetched.tokens else None,
            tokens=fetched.tokens,
            reason=hit.reason if fetched.reason is None else fetched.reason,
            lookup_s=looked_up - started,
            fetch_s=time.perf_counter() - looked_up,
            bytes_by_zone=dict(fetched.bytes_by_zone),
        )

    def deadline_s(self, tokens: int) -> float:
        """Return how long a fetch of `tokens` tokens may take, in seconds."""
        settings, recompute_s = self._settings, self.pace.seconds(tokens)
        if recompute_s is None:
            return settings.fetch_deadline_s
        worthwhile_s = max(settings.fetch_min_s, settings.fetch_share * recompute_s)
        return min(settings.fetch_deadline_s, worthwhile_s)

    def _nothing(self, call: str, error: KvorumError, *, lookup_s: float) -> Prefix:
        # The client reports trouble of the cluster as a miss. What it raises is a defect or a
        # closed client: no reason to fail a generation that doesn't need the cache.
        self.failures[type(error).__name__] += 1
        _LOG.warning("%s failed, generating without the cache: %s", call, error)
        return Prefix(lookup_s=lookup_s)
