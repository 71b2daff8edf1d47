"""Counts as people read them: 512.0 MiB, 1 block, 2 blocks."""

from __future__ import annotations


def format_size(count: float) -> str:
    """Return `count` bytes with a binary unit and one decimal."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_count(count: int, word: str) -> str:
    """Return `count` with its word, which takes an "s" unless there is one."""
    return f"{count} {word}{'' if count == 1 else 's'}"
