"""Goal: a log stays bounded and keeps whole, newest lines."""

from __future__ import annotations

import os
from pathlib import Path

from kvorum.cli.watch import cut_log


def test_a_large_log_keeps_its_newest_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        lines = [b"line %06d\n" % number for number in range(1_000)]
        os.write(descriptor, b"".join(lines))
        assert cut_log(descriptor, 4_096)
        kept = path.read_bytes()
        assert len(kept) <= 2_048
        assert kept.splitlines(keepends=True) == lines[-len(kept) // len(lines[0]) :]
        os.write(descriptor, b"next\n")
        assert path.read_bytes() == kept + b"next\n"
    finally:
        os.close(descriptor)


def test_a_small_log_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, b"x" * 4_096)
        assert not cut_log(descriptor, 4_096)
        assert path.read_bytes() == b"x" * 4_096
    finally:
        os.close(descriptor)
