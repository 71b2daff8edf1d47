"""Canonical bytes: how placement writes values down so that equal values hash equally."""

from __future__ import annotations

import struct


def text(value: str) -> bytes:
    """Return UTF-8 behind its length in bytes as little-endian uint32."""
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def numbers(*values: int) -> bytes:
    """Return each value as little-endian uint64."""
    return struct.pack(f"<{len(values)}Q", *values)
