"""Races: the first good answer wins, or all in good time; nothing goes on behind their back."""

from __future__ import annotations

import asyncio

import pytest

from kvorum.client.race import first_success, successes
from kvorum.core.errors import KvorumError, PermissionDeniedError, UnavailableError

LONG_S = 60.0


class Scripted:
    """Attempts that answer, fail or hang, and say what became of them."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.cancelled: list[str] = []

    def answers(self, name: str) -> str:
        self.started.append(name)
        return name

    async def succeed(self) -> str:
        return self.answers("good")

    async def fail(self) -> str:
        self.answers("down")
        raise UnavailableError("down")

    async def deny(self) -> str:
        self.answers("denied")
        raise PermissionDeniedError("denied")

    async def hang(self) -> str:
        self.answers("hung")
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            self.cancelled.append("hung")
            raise
        raise AssertionError("nobody waits that long")


async def test_the_first_success_counts_and_later_attempts_are_not_made() -> None:
    script = Scripted()
    assert await first_success([script.succeed, script.fail], LONG_S) == "good"
    assert script.started == ["good"]


async def test_a_failure_starts_the_next_attempt_at_once() -> None:
    script = Scripted()
    async with asyncio.timeout(LONG_S / 2):
        assert await first_success([script.fail, script.succeed], LONG_S) == "good"


async def test_a_slow_attempt_is_overtaken_and_cancelled() -> None:
    script = Scripted()
    async with asyncio.timeout(LONG_S / 2):
        assert await first_success([script.hang, script.succeed], 0.001) == "good"
    assert script.cancelled == ["hung"]


async def test_the_error_that_no_retry_cures_is_the_one_to_tell() -> None:
    script = Scripted()
    with pytest.raises(PermissionDeniedError):
        await first_success([script.fail, script.deny, script.fail], 0.001)
    assert len(script.started) == 3


async def test_nothing_to_ask_is_an_error() -> None:
    nothing: list[object] = []
    with pytest.raises(KvorumError):
        await first_success(nothing, 1.0)  # type: ignore[arg-type]  # there is no attempt to type


async def test_being_cancelled_cancels_the_attempts() -> None:
    script = Scripted()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await first_success([script.hang], LONG_S)
    assert script.cancelled == ["hung"]


async def test_all_successes_in_good_time_are_returned_in_order() -> None:
    script = Scripted()
    async with asyncio.timeout(LONG_S / 2):
        got = await successes([script.hang, script.fail, script.succeed, script.succeed], 0.01)
    assert got == ["good", "good"]
    assert script.cancelled == ["hung"]


async def test_when_none_succeeds_the_most_telling_error_is_raised() -> None:
    script = Scripted()
    with pytest.raises(PermissionDeniedError):
        await successes([script.fail, script.deny], LONG_S)
