"""The thread of a `Client`: no caller waits for a loop that has ended."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Final

import pytest

from kvorum.client import AsyncClient
from kvorum.client.sync import _Runner
from kvorum.core.errors import UnavailableError
from tests.integration.support.values import OPAQUE

PATIENCE_S: Final = 20.0


async def answer() -> int:
    return 7


@pytest.fixture
def runner() -> _Runner:
    return _Runner(AsyncClient("127.0.0.1:9", namespace="n", fingerprint=OPAQUE))


def test_a_call_that_comes_after_the_end_is_refused(runner: _Runner) -> None:
    assert runner.submit(answer()).result(PATIENCE_S) == 7
    runner.stop()
    with pytest.raises(UnavailableError, match="closed"):
        runner.submit(answer())


def test_a_call_that_the_loop_never_came_to_ends_with_it(
    runner: _Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is handed over in the moment in which the loop stops."""
    with monkeypatch.context() as patch:
        patch.setattr(runner._loop, "call_soon_threadsafe", lambda *_, **__: None)
        waiting = runner.submit(answer())
    runner.stop()
    with pytest.raises(CancelledError):
        waiting.result(PATIENCE_S)
