"""The pool: what closes under those who wait for a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kvorum.client.pool import Pool
from kvorum.core.errors import UnavailableError

PATIENCE_S = 20.0


async def close_under(pool: Pool, address: str, close: Callable[[], Awaitable[None]]) -> None:
    """Wait for a connection that will never come, and call `close` while that lasts."""
    async with asyncio.timeout(PATIENCE_S):
        waiting = asyncio.ensure_future(pool.connect([address], 2 * PATIENCE_S))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await close()
        await waiting


async def test_a_pool_that_is_closed_under_a_wait_says_so() -> None:
    pool = Pool(None, 1)
    with pytest.raises(UnavailableError, match="closed"):
        await close_under(pool, "127.0.0.1:1", pool.close)
    with pytest.raises(UnavailableError, match="closed"):
        await pool.connect(["127.0.0.1:1"], PATIENCE_S)


async def test_a_link_that_is_dropped_under_a_wait_ends_the_wait() -> None:
    """A probe drops the connections of a node that does not answer."""
    pool = Pool(None, 1)
    await close_under(pool, "127.0.0.1:1", lambda: pool.drop("127.0.0.1:1"))
    await pool.close()
