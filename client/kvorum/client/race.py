"""Asking several nodes at once: for the first good answer, or for all that come in good time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from kvorum.core.errors import KvorumError, UnavailableError

T = TypeVar("T")

Attempt: TypeAlias = "Callable[[], Awaitable[T]]"


async def first_success(attempts: Sequence[Attempt[T]], stagger_s: float) -> T:
    """Return the first success; the next attempt starts when the last one is slow or has failed.

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
    raise _most_telling(errors)


async def successes(attempts: Sequence[Attempt[T]], grace_s: float) -> list[T]:
    """Return the successes of attempts that all start at once, in the order of the attempts.

    Args:
        attempts: what to try.
        grace_s: seconds after the first success for which the others are waited for.

    Raises:
        KvorumError: all failed; see `first_success`.
    """
    timeout: float | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_caught(attempt)) for attempt in attempts]
        running = set(tasks)
        while running:
            done, running = await asyncio.wait(
                running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            if any(not isinstance(task.result(), KvorumError) for task in done):
                timeout = grace_s
        _cancel(running)
    results = [task.result() for task in tasks if task.done() and not task.cancelled()]
    good = [result for result in results if not isinstance(result, KvorumError)]
    if not good:
        raise _most_telling([result for result in results if isinstance(result, KvorumError)])
    return good


async def _caught(attempt: Attempt[T]) -> T | KvorumError:
    try:
        return await attempt()
    except KvorumError as error:
        return error


def _cancel(tasks: set[asyncio.Task[T | KvorumError]]) -> None:
    for task in tasks:
        task.cancel()


def _most_telling(errors: Sequence[KvorumError]) -> KvorumError:
    """Return the error that a retry cannot cure if there is one, else the first."""
    if not errors:
        return UnavailableError("there is no node to ask")
    return next((error for error in errors if not error.retryable), errors[0])
