"""StopRequests: SIGINT and SIGTERM as something to ask about instead of an exception."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class StopRequests:
    """Counts SIGINT and SIGTERM instead of raising: a process that is being started is not lost."""

    def __init__(self) -> None:
        self._count = 0

    def first(self) -> bool:
        """Whether someone asked to stop."""
        return self._count > 0

    def second(self) -> bool:
        """Whether someone asked again."""
        return self._count > 1

    def _add(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a handler's
        self._count += 1

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the signals during the block."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        previous = [signal.signal(number, self._add) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, previous, strict=True):
                signal.signal(number, handler)
