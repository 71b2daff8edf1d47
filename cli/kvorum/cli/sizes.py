"""Byte counts as people write and read them: 512MiB in, 512.0 MiB out."""

from __future__ import annotations

import re
from typing import Final

import click

_UNITS: Final = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS_BINARY: Final = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt]i?)b?|b)?", re.ASCII | re.IGNORECASE)
_RULE: Final = "a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"


def parse_size(text: str) -> int:
    """Return the bytes that `text` names, such as "512MiB", "1.5 GB" or "4096".

    Raises:
        ValueError: it is not a size.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size; write {_RULE}")
    unit = (match[2] or "").lower()
    factor = _UNITS_BINARY.get(unit) or _UNITS[unit]
    # Exact for integers of any length; a fraction is cut to whole bytes.
    return int(match[1]) * factor if match[1].isdigit() else int(float(match[1]) * factor)


def format_size(count: float) -> str:
    """Return `count` bytes with a binary unit and one decimal."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


class SizeType(click.ParamType[int]):
    """A flag whose value is a size."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return bytes; a value that is a number already stays."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE: Final = SizeType()
