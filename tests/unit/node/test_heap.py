"""The allocator is tuned where that can be done, and left alone where somebody says so."""

from __future__ import annotations

import platform

import pytest

from kvorum.client import malloc
from kvorum.node import heap

GLIBC = platform.libc_ver()[0] == "glibc"


@pytest.mark.parametrize("switch", [None, "1"])
def test_glibc_is_tuned_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, switch: str | None
) -> None:
    monkeypatch.delenv(malloc.SWITCH, raising=False)
    if switch is not None:
        monkeypatch.setenv(malloc.SWITCH, switch)
    assert malloc.tune() is GLIBC
    assert heap.prepare() is GLIBC


def test_the_environment_can_keep_the_allocator_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVORUM_MALLOC_TUNING", "0")
    assert not malloc.set_option(-1, 128 << 20)
    assert not malloc.tune()
    assert not heap.prepare()
