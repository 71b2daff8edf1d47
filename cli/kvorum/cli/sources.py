"""Where files come from and go to on this machine, and how token lists are written."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from kvorum.cli.exits import FileError, UsageError
from kvorum.cli.filechain import TokenArray
from kvorum.core.keys import token_array

STANDARD: Final = "-"
"""The path that stands for stdin or stdout."""

_TOKEN_FILE_BYTES_MAX: Final = 64 << 20


@contextlib.contextmanager
def open_source(path: str) -> Iterator[io.BufferedIOBase]:
    """Open a file for reading, seekable; stdin goes through a temporary file.

    Raises:
        FileError: it cannot be read, or is no file.
    """
    try:
        if path == STANDARD:
            with tempfile.TemporaryFile() as spool:
                shutil.copyfileobj(sys.stdin.buffer, spool)
                spool.seek(0)
                yield spool
        else:
            with Path(path).open("rb") as file:
                if not file.seekable():
                    raise FileError(f"{path} is no regular file", field="FILE")
                yield file
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", field="FILE") from error


@contextlib.contextmanager
def open_target(path: str) -> Iterator[BinaryIO]:
    """Open a file that appears at `path` when the block ends, whole, and not at all on an error.

    What is no regular file there, a device or a pipe, is written to and stays what it is.

    Raises:
        FileError: it cannot be written.
    """
    try:
        if path == STANDARD or _is_special(Path(path)):
            with tempfile.TemporaryFile() as spool:
                yield spool
                spool.seek(0)
                _pour(spool, path)
        else:
            with _replacing(Path(path)) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}", field="--output") from error


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _pour(spool: BinaryIO, path: str) -> None:
    if path == STANDARD:
        shutil.copyfileobj(spool, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        with Path(path).open("wb") as sink:
            shutil.copyfileobj(spool, sink)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    if path.is_dir():
        raise FileError(f"{path} is a directory", field="--output")
    # In the same folder, so that the rename is atomic. A file that is there keeps its mode.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(path))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def read_tokens(listed: str | None, path: Path | None) -> TokenArray | None:
    """Return the token ids of `--tokens` or `--token-file`; None if neither was given.

    Raises:
        UsageError: both were given, or the list is malformed.
        FileError: the file cannot be read or is neither JSON nor NumPy.
        InvalidArgumentError: they are not token ids; see `kvorum.core.keys.token_array`.
    """
    if listed is not None and path is not None:
        raise UsageError("--tokens and --token-file exclude one another", field="--tokens")
    if listed is not None:
        return token_array(_parse_list(listed))
    if path is not None:
        return token_array(_read_token_file(path))
    return None


def _parse_list(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{text!r:.100} is no list of token ids", field="--tokens", limit="such as 1,2,3"
        ) from None


def _read_token_file(path: Path) -> list[int] | np.ndarray[tuple[int, ...], np.dtype[np.integer]]:
    try:
        size = path.stat().st_size
        if size > _TOKEN_FILE_BYTES_MAX:
            raise FileError(
                f"{path} has {size} bytes",
                field="--token-file",
                limit=f"{_TOKEN_FILE_BYTES_MAX} bytes",
            )
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return np.lib.format.read_array(file, allow_pickle=False)
        value = json.loads(path.read_text())
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", field="--token-file") from error
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"{path} is not readable: {error}", field="--token-file", limit=".json or .npy"
        ) from error
    if not isinstance(value, list):
        raise FileError(
            f"{path} holds no list", field="--token-file", limit="a JSON list of integers"
        )
    return value
