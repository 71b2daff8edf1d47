"""Progress of a long transfer: a bar on stderr when a person watches, nothing otherwise."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

BAR_BYTES_MIN: Final = 16 << 20
"""Transfers below this are over before a bar can be read."""


class Transfer:
    """Is told how a transfer goes, and shows it or not.

    Args:
        label: what is shown beside the bar.
        bars: where to show it; None to show nothing.
    """

    def __init__(self, label: str, bars: Progress | None = None) -> None:
        self._label = label
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, size: int) -> None:
        """A transfer of `size` bytes begins."""
        if self._bars is not None and size >= BAR_BYTES_MIN:
            self._task = self._bars.add_task(self._label, total=size)

    def advance(self, size: int) -> None:
        """Another `size` bytes are through."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, size)


@contextlib.contextmanager
def transfer_bar(label: str, *, quiet: bool) -> Iterator[Transfer]:
    """Yield a transfer that shows itself if stderr is a terminal and not `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield Transfer(label)
        return
    from rich.console import Console  # noqa: PLC0415  # only a terminal needs them
    from rich.progress import (  # noqa: PLC0415  # likewise
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield Transfer(label, bars)
