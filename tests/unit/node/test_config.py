"""NodeConfig: ranges, and what holds between settings."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kvorum.core.errors import KvorumError
from kvorum.node.config import NodeConfig

MIB = 1 << 20


def test_the_defaults_hold_together() -> None:
    config = NodeConfig(name="a")
    assert config.part_bytes_max == 64 * MIB
    assert not config.tls


def test_the_largest_part_follows_a_small_arena() -> None:
    assert NodeConfig(name="a", memory=8 * MIB).part_bytes_max == 2 * MIB
    assert NodeConfig(name="a", memory=8 * MIB, part_max=MIB).part_bytes_max == MIB


def test_an_arena_is_whole_granules() -> None:
    assert NodeConfig(name="a", memory=8 * MIB + 4_095).capacity_bytes == 8 * MIB


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        NodeConfig(name="a").memory = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "Upper"}),
        ("memory", {"memory": MIB - 1}),
        ("memory", {"memory": 16 * MIB, "part_max": 4 * MIB + 1}),
        ("memory", {"memory": True}),
        ("part_max", {"part_max": 64 * MIB + 1}),
        ("listen", {"listen": "0.0.0.0:7000"}),
        ("listen", {"listen": "example.org:7000"}),
        ("member.address", {"listen": "127.0.0.1"}),
        ("member.address", {"listen": "127.0.0.1:0"}),
        ("tls_key", {"tls_cert": "c"}),
        ("tls_ca", {"tls_cert": "c", "tls_key": "k"}),
        ("tls_cert", {"tls_ca": "a"}),
        ("concurrent_calls_max", {"concurrent_calls_max": 0}),
        ("concurrent_gets_max", {"concurrent_calls_max": 40, "concurrent_gets_max": 41}),
        ("concurrent_puts_max", {"concurrent_calls_max": 40, "concurrent_puts_max": 41}),
        ("call_s_max", {"call_s_max": 60.5}),
        ("call_s_max", {"call_s_max": float("nan")}),
        ("down_after_s", {"down_after_s": 1.5}),
        ("pipe_bytes_max", {"pipe_bytes_max": 16 * MIB}),
        ("pipe_entries_max", {"pipe_entries_max": 1}),
        ("window", {"window": 1}),
        ("drain_s", {"drain_s": -1.0}),
        ("eviction", {"eviction": "random"}),
    ],
)
def test_what_does_not_hold_is_refused_and_named(field: str, settings: dict[str, Any]) -> None:
    with pytest.raises(KvorumError) as caught:
        NodeConfig(**{"name": "a", **settings})
    assert caught.value.field == field
    assert caught.value.limit


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "[::1]", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert NodeConfig(name="a", listen=f"{host}:7000").listen


def test_any_address_will_do_with_tls() -> None:
    config = NodeConfig(name="a", listen="0.0.0.0:7000", tls_cert="c", tls_key="k", tls_ca="a")
    assert config.tls
