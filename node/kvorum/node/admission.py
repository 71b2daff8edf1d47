"""Admission: how much a node does at once. Beyond it a caller is refused in microseconds.

A refusal is cheaper for everyone than a queue: the caller asks another replica, or computes the KV
itself, and has lost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kvorum.core.errors import OverloadedError
from kvorum.node.config import NodeConfig

RETRY_AFTER_S: Final = 0.05


class Gate:
    """Lets a bounded number of callers in.

    Attributes:
        name: setting that bounds it, for the error.
        limit: callers inside at once.
        inside: callers inside now.
        refused: callers turned away since the start.
    """

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.inside = 0
        self.refused = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Be inside for as long as the context lasts.

        Raises:
            OverloadedError: the gate is full.
        """
        if self.inside >= self.limit:
            self.refused += 1
            raise OverloadedError(
                f"{self.inside} calls are being served",
                field=self.name,
                limit=f"{self.limit} at once",
                retry_after_s=RETRY_AFTER_S,
            )
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


class Admission:
    """The gates of a node: every call passes `calls`; reads and writes of payload one more."""

    def __init__(self, config: NodeConfig) -> None:
        self.calls = Gate("concurrent_calls_max", config.concurrent_calls_max)
        self.gets = Gate("concurrent_gets_max", config.concurrent_gets_max)
        self.puts = Gate("concurrent_puts_max", config.concurrent_puts_max)

    @property
    def refused(self) -> int:
        """Calls turned away since the start, by all gates."""
        return self.calls.refused + self.gets.refused + self.puts.refused
