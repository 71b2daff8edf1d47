"""Every argument that cannot work is refused with its name and its limit, before any call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from kvorum.client import arguments
from kvorum.client.policy import NamespacePolicy
from kvorum.client.results import Hit, LocatedBlock
from kvorum.client.security import Tls, call_metadata
from kvorum.client.settings import ClientSettings
from kvorum.core.errors import FingerprintError, InvalidArgumentError
from tests.unit.client.samples import build

TOKEN = "".join("token")
ONE = build()
RANKS = build(tp_size=2)
BLOCK = LocatedBlock(0, b"k" * 64, 0, 1, 10, 1, ("n",))
BAD: list[tuple[str, Callable[[], object]]] = [
    ("endpoints", lambda: arguments.check_endpoints([], token=None, tls=None)),
    ("endpoints", lambda: arguments.check_endpoints(["h:1"] * 65, token=None, tls=None)),
    ("endpoints[0]", lambda: arguments.check_endpoints("host", token=None, tls=None)),
    ("endpoints[1]", lambda: arguments.check_endpoints(["a:1", "b:0"], token=None, tls=None)),
    ("endpoints[0]", lambda: arguments.check_endpoints("far.example:1", token=TOKEN, tls=None)),
    ("zone", lambda: arguments.check_zone("Zone A")),
    ("part", lambda: arguments.check_part(1, ONE)),
    ("part", lambda: arguments.check_part(-1, RANKS)),
    ("part", lambda: arguments.check_part(True, RANKS)),
    ("writer", lambda: arguments.require_writer(None, RANKS)),
    ("writer", lambda: arguments.check_writer("")),
    ("writer", lambda: arguments.check_writer("w" * 129)),
    ("budget_s", lambda: arguments.check_seconds(-1, 0, "budget_s")),
    ("budget_s", lambda: arguments.check_seconds(math.nan, 0, "budget_s")),
    ("budget_s", lambda: arguments.check_seconds(math.inf, 0, "budget_s")),
    ("lease_s", lambda: arguments.check_lease(61)),
    ("hit", lambda: arguments.check_hit(Hit(16, (BLOCK,), namespace="other"), "n", b"")),
    ("hit", lambda: arguments.check_hit(Hit(16, (BLOCK,), namespace="n"), "n", b"d")),
    ("layers", lambda: arguments.check_layers((0, 5), ONE)),
    ("layers", lambda: arguments.check_layers((2, 2), ONE)),
    ("layers", lambda: arguments.check_layers((-1, 2), ONE)),
    ("layers", lambda: arguments.check_layers((0, 1), build(layout="opaque"))),
    ("first_block", lambda: arguments.check_first_block(3, 2)),
    ("token", lambda: call_metadata("")),
    ("token", lambda: call_metadata("new\nline")),
    ("tls.key", lambda: Tls(cert=b"c")),
    ("tls.cert", lambda: Tls(key=b"k")),
    ("policy.replicas", lambda: NamespacePolicy(replicas=4)),
    ("policy.ttl_s", lambda: NamespacePolicy(ttl_s=-1)),
    ("policy.idle_ttl_s", lambda: NamespacePolicy(idle_ttl_s=math.nan)),
    ("policy.quota_bytes", lambda: NamespacePolicy(quota_bytes=-1)),
    ("settings.lookup_budget_s", lambda: ClientSettings(lookup_budget_s=0)),
    ("settings.attempts_max", lambda: ClientSettings(attempts_max=0)),
    ("settings.hedge_budget", lambda: ClientSettings(hedge_budget=1.5)),
    ("settings.hedge_min_s", lambda: ClientSettings(hedge_min_s=0.2, hedge_max_s=0.1)),
    ("settings.backoff_min_s", lambda: ClientSettings(backoff_min_s=9, backoff_max_s=1)),
]


@pytest.mark.parametrize(
    ("field", "call"), BAD, ids=[f"{at}-{field}" for at, (field, _) in enumerate(BAD)]
)
def test_the_error_names_field_and_limit(field: str, call: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert caught.value.field == field
    assert caught.value.limit


@pytest.mark.parametrize("value", ["text", (1,), (1, 2, 3), (1.0, 2), None])
def test_layers_are_two_integers(value: Any) -> None:
    if value is None:
        assert arguments.check_layers(None, ONE) is None
        return
    with pytest.raises(InvalidArgumentError):
        arguments.check_layers(value, ONE)


@pytest.mark.parametrize("value", ["5", True, None, object()])
def test_seconds_are_numbers(value: Any) -> None:
    if value is None:
        assert arguments.check_seconds(None, 4.0, "budget_s") == 4.0
        return
    with pytest.raises(InvalidArgumentError):
        arguments.check_seconds(value, 0.0, "budget_s")


def test_what_is_no_fingerprint_or_no_hit_is_refused() -> None:
    wrong: Any = {"model": "m"}
    with pytest.raises(FingerprintError):
        arguments.check_fingerprint(wrong)
    with pytest.raises(InvalidArgumentError):
        arguments.check_hit(wrong, "n", b"")


@pytest.mark.parametrize(
    "changes", [{"cp_size": 2}, {"tp_size": 2048, "layout": "opaque"}, {"head_size": 1 << 24}]
)
def test_a_fingerprint_whose_blocks_cannot_be_stored_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        arguments.check_fingerprint(build(**changes))
    assert caught.value.field.startswith("fingerprint.")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_a_token_may_travel_on_this_machine(address: str) -> None:
    assert arguments.check_endpoints(address, token=TOKEN, tls=None) == (address,)


def test_a_token_may_travel_anywhere_under_tls() -> None:
    assert arguments.check_endpoints("far.example:1", token=TOKEN, tls=Tls()) == ("far.example:1",)


def test_secrets_are_not_shown() -> None:
    tls = Tls(ca=b"authority", cert=b"certificate", key=b"private")
    assert "private" not in repr(tls)
    assert "certificate" not in repr(tls)


def test_a_writer_is_needed_where_parts_must_be_told_apart() -> None:
    assert arguments.require_writer("engine-1", RANKS) == "engine-1"
    assert arguments.require_writer(None, ONE) == arguments.require_writer(None, build(layers=2))
