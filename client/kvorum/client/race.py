"""first_success: ask several nodes, the next one as soon as the last one is slow or has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from kvorum.core.errors import KvorumError, UnavailableError

T = TypeVar("T")

Attempt: TypeAlias = "Callable[[], Awaitable[T]]"


async def first_success(attempts: Sequence[Attempt[T]], stagger_s: float) -> T:
    """Return the first success.

    Args:
        attempts: what to try, in this order.
        stagger_s: seconds to wait for an attempt before the next one is started beside it.

    Raises:
        KvorumError: all failed; the error that a retry cannot cure if there is one, else the first.
    """
    errors: list[KvorumError] = []
    running: set[asyncio.Task[T | KvorumError]] = set()
    waiting = list(attempts)
    async with asyncio.TaskGroup() as group:
        while waiting or running:
            if waiting:
                running.add(group.create_task(_caught(waiting.pop(0))))
            done, running = await asyncio.wait(
                running,
                timeout=stagger_s if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                result = task.result()
                if not isinstance(result, KvorumError):
                    _cancel(running)
                    return result
                errors.append(result)
    if not errors:
        raise UnavailableError("there is no node to ask")
    raise next((error for error in errors if not error.retryable), errors[0])


async def _caught(attempt: Attempt[T]) -> T | KvorumError:
    try:
        return await attempt()
    except KvorumError as error:
        return error


def _cancel(tasks: set[asyncio.Task[T | KvorumError]]) -> None:
    for task in tasks:
        task.cancel()
