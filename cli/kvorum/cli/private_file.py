"""Cluster files on disk: private to their owner, replaced at once, and never something else."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kvorum.cli.exits import FileError
from kvorum.core.errors import InvalidArgumentError
from kvorum.placement import ClusterFile


def write_private(path: Path, text: str) -> None:
    """Replace `path` by `text`, at once and readable by its owner only.

    Raises:
        FileError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}", field="FILE") from error


def check_replaceable(path: Path) -> None:
    """Check that `path` does not exist, or is an older cluster file.

    Raises:
        FileError: it is something else.
    """
    if not path.exists():
        return
    try:
        ClusterFile.parse(path.read_text())
    except (OSError, UnicodeDecodeError, InvalidArgumentError) as error:
        raise FileError(
            f"{path} exists and is no cluster file", field="cluster_file", limit="a new path"
        ) from error
