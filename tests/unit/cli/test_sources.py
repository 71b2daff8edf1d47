"""Goal: a file appears whole or not at all, and token lists are read or refused with a reason."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kvorum.cli.exits import CommandError, FileError, UsageError
from kvorum.cli.sources import open_source, open_target, read_tokens
from kvorum.core.errors import InvalidArgumentError


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def break_off(path: Path) -> None:
    with open_target(str(path)) as file:
        file.write(b"half")
        raise RuntimeError


def test_a_target_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_target(str(path)) as file:
        file.write(b"bytes")
        assert not path.exists()
    assert path.read_bytes() == b"bytes"
    assert names(tmp_path) == ["out"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with pytest.raises(RuntimeError):
        break_off(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out"]
    with open_target(str(path)) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_target_that_is_no_regular_file_stays_what_it_is(tmp_path: Path) -> None:
    """Goal: nobody, root included, replaces a device by a file. Method: a pipe stands for it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(RuntimeError):
            break_off(path)
        assert os.read(reader, 100) == b""
        with open_target(str(path)) as file:
            file.write(b"bytes")
        assert os.read(reader, 100) == b"bytes"
    finally:
        os.close(reader)
    assert path.is_fifo()
    assert names(tmp_path) == ["pipe"]


@pytest.mark.parametrize("name", ["", "missing/out"])
def test_an_unwritable_target_is_a_file_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError), open_target(str(tmp_path / name)):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["", "missing"])
def test_an_unreadable_source_is_a_file_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError), open_source(str(tmp_path / name)):
        pass


def test_a_pipe_is_no_source() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(FileError, match="regular"), open_source(f"/dev/fd/{reader}"):
            pass
    finally:
        os.close(reader)
        os.close(writer)


def test_tokens_come_from_flag_json_or_numpy(tmp_path: Path) -> None:
    as_json, as_numpy = tmp_path / "t.json", tmp_path / "t.npy"
    as_json.write_text("[1, 2, 3]")
    np.save(as_numpy, np.array([1, 2, 3]))
    for tokens in (
        read_tokens("1, 2,3", None),
        read_tokens(None, as_json),
        read_tokens(None, as_numpy),
    ):
        assert tokens is not None
        assert tokens.tolist() == [1, 2, 3]
    assert read_tokens(None, None) is None


@pytest.mark.parametrize("text", ["", "1,x", "1.5", "1,,2"])
def test_malformed_lists_are_bad_usage(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_tokens(text, None)
    assert caught.value.field == "--tokens"


@pytest.mark.parametrize("text", ["-1", "4294967296"])
def test_ids_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_tokens(text, None)
    assert caught.value.field == "tokens"


@pytest.mark.parametrize("text", ["[1, 2.5]", "[true]", '["1"]', "[]", "[[1]]"])
def test_json_that_is_no_list_of_integers_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError):
        read_tokens(None, path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", b"{}"),
        ("t.json", b"\xff"),
        ("deep.json", b"[" * 200_000),
        ("t.npy", b"junk"),
        ("u", b"x"),
    ],
    ids=["object", "binary", "deep", "npy", "neither"],
)
def test_unreadable_token_files_are_file_errors(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_tokens(None, path)
    assert caught.value.field == "--token-file"


def test_numpy_files_with_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(FileError):
        read_tokens(None, path)


def test_two_lists_are_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="exclude"):
        read_tokens("1", tmp_path / "t.json")
