"""The keeper: a defect in the background is told to somebody."""

from __future__ import annotations

import pytest

from kvorum.client import AsyncClient
from kvorum.client.finder import Finder
from kvorum.client.view import View
from kvorum.core.errors import InternalError
from tests.integration.support.values import OPAQUE, draw_tokens


async def test_a_defect_is_raised_where_that_is_allowed_and_logged_in_any_case(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(finder: Finder, known: View | None) -> View:  # noqa: ARG001  # as `find`
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Finder, "find", broken)
    async with AsyncClient("127.0.0.1:9", namespace="n", fingerprint=OPAQUE) as client:
        assert not await client.lookup(draw_tokens(16, 1))
        assert "ZeroDivisionError: a defect" in caplog.text
        with pytest.raises(InternalError, match="background"):
            await client.connect(0.05)
