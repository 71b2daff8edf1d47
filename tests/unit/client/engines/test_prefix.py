"""Goal: reading a prefix is bounded in time, and trouble becomes a shorter prefix, never an error.

Method: a client that records what it was asked and answers what the test says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from kvorum.client import Client, Hit, MissReason  # noqa: E402
from kvorum.client.engines.kv_cache import CacheShape  # noqa: E402
from kvorum.client.engines.prefix import Pace, PrefixReader  # noqa: E402
from kvorum.client.engines.settings import GeneratorSettings  # noqa: E402
from kvorum.core.errors import InternalError, KvorumError, UnavailableError  # noqa: E402

pytestmark = pytest.mark.engine

TOKENS = np.arange(64, dtype=np.uint32)
SHAPE = CacheShape(
    layers=2,
    kv_heads=1,
    head_size=4,
    kv_dtype="float32",
    tokens_max=None,
    devices=(torch.device("cpu"),) * 2,
)


@dataclass
class Arrived:
    """What the recorded fetch returns."""

    tokens: int
    reason: MissReason | None = None
    bytes_by_zone: dict[str, int] = field(default_factory=lambda: {"a": 7})


@dataclass
class Recorder:
    """Stands where the client does."""

    hit: Hit | KvorumError
    arrived: Arrived | KvorumError | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    def lookup(self, tokens: Any, *, budget_s: float | None, lease_s: float) -> Hit:
        self.asked.update(tokens=tokens, budget_s=budget_s, lease_s=lease_s)
        if isinstance(self.hit, KvorumError):
            raise self.hit
        return self.hit

    def fetch(self, hit: Hit, *, into: Any, deadline_s: float) -> Arrived:
        self.asked.update(hit=hit, deadline_s=deadline_s, shape=tuple(into.shape))
        if isinstance(self.arrived, KvorumError):
            raise self.arrived
        assert self.arrived is not None
        into[:, :, :, : self.arrived.tokens] = 3.0
        return self.arrived


def reader(recorder: Recorder, settings: GeneratorSettings | None = None) -> PrefixReader:
    return PrefixReader(cast(Client, recorder), SHAPE, settings or GeneratorSettings())


def test_a_hit_is_fetched_into_memory_of_the_caches_shape() -> None:
    recorder = Recorder(Hit(48, reason=MissReason.NEVER_STORED), Arrived(48))
    settings = GeneratorSettings(lookup_budget_s=0.25, lease_s=3.0, fetch_deadline_s=2.0)
    prefix = reader(recorder, settings).read(TOKENS)
    assert recorder.asked["budget_s"] == 0.25
    assert recorder.asked["lease_s"] == 3.0
    assert recorder.asked["deadline_s"] == 2.0
    assert recorder.asked["shape"] == (2, 2, 1, 48, 4)
    assert prefix.tokens == 48
    assert prefix.kv is not None
    assert tuple(prefix.kv.shape) == (2, 2, 1, 48, 4)
    assert bool((prefix.kv == 3.0).all())
    assert prefix.reason is MissReason.NEVER_STORED
    assert prefix.bytes_by_zone == {"a": 7}


def test_a_fetch_that_falls_short_gives_what_arrived_and_why() -> None:
    recorder = Recorder(Hit(48), Arrived(16, MissReason.CHECKSUM))
    prefix = reader(recorder).read(TOKENS)
    assert prefix.tokens == 16
    assert prefix.kv is not None
    assert tuple(prefix.kv.shape) == (2, 2, 1, 16, 4)
    assert prefix.reason is MissReason.CHECKSUM


def test_a_fetch_in_vain_gives_nothing() -> None:
    prefix = reader(Recorder(Hit(48), Arrived(0, MissReason.TIMEOUT))).read(TOKENS)
    assert prefix.kv is None
    assert prefix.tokens == 0
    assert prefix.reason is MissReason.TIMEOUT


def test_a_miss_is_not_fetched() -> None:
    recorder = Recorder(Hit(0, reason=MissReason.NODE_DOWN))
    prefix = reader(recorder).read(TOKENS)
    assert "hit" not in recorder.asked
    assert prefix.kv is None
    assert prefix.reason is MissReason.NODE_DOWN


@pytest.mark.parametrize("call", ["lookup", "fetch"])
def test_what_the_client_raises_is_counted_and_costs_only_the_hit(call: str) -> None:
    error = InternalError("closed")
    recorder = Recorder(error) if call == "lookup" else Recorder(Hit(48), error)
    under_test = reader(recorder)
    prefix = under_test.read(TOKENS)
    assert prefix.kv is None
    assert prefix.tokens == 0
    assert under_test.failures == {"InternalError": 1}


def test_other_errors_are_defects_and_pass() -> None:
    class Broken(Recorder):
        def lookup(self, *_: Any, **__: Any) -> Hit:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        reader(Broken(UnavailableError("unused"))).read(TOKENS)


def test_a_fetch_may_take_a_share_of_the_time_to_recompute() -> None:
    settings = GeneratorSettings(fetch_min_s=0.01, fetch_deadline_s=2.0, fetch_share=0.25)
    under_test = reader(Recorder(Hit(0)), settings)
    assert under_test.deadline_s(1000) == 2.0  # nothing is known yet
    under_test.pace.observe(1000, 1.0)
    assert under_test.deadline_s(1000) == pytest.approx(0.25)
    assert under_test.deadline_s(16) == 0.01
    assert under_test.deadline_s(100_000) == 2.0


def test_the_pace_follows_long_prefills_only() -> None:
    pace = Pace()
    assert pace.seconds(10) is None
    pace.observe(1, 5.0)
    assert pace.seconds(10) is None
    pace.observe(100, 1.0)
    assert pace.seconds(200) == pytest.approx(2.0)
    for _ in range(50):
        pace.observe(100, 2.0)
    assert pace.seconds(100) == pytest.approx(2.0, rel=0.01)
