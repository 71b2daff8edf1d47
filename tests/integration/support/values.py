"""Deterministic inputs: fingerprints, token ids and KV bytes that a seed alone determines."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kvorum.core.fingerprint import Fingerprint
from kvorum.core.layout import BlockLayout

TENSORS: Final = Fingerprint(
    model="tests/tensors",
    weights_revision="rev-1",
    tokenizer="tests/tokenizer-1",
    adapter="none",
    kv_dtype="float16",
    layout="LKHTD",
    layers=2,
    kv_heads=4,
    head_size=8,
    rope="theta=10000",
    tp_size=1,
    pp_size=1,
    cp_size=1,
    block_tokens=16,
    codec_class="lossless",
)
"""Blocks of 16 tokens and 4 KiB: [2 layers, 2, 4 heads, 16 tokens, 8 elements] of float16."""

OPAQUE: Final = replace(TENSORS, model="tests/opaque", layout="opaque")
"""Blocks of 16 tokens and any number of bytes."""

CHANGED: Final[dict[str, str | int]] = {
    "model": "tests/other",
    "weights_revision": "rev-2",
    "tokenizer": "tests/tokenizer-2",
    "adapter": "lora@1",
    "kv_dtype": "bfloat16",
    "layout": "opaque",
    "layers": 4,
    "kv_heads": 8,
    "head_size": 16,
    "rope": "theta=500000",
    "tp_size": 2,
    "pp_size": 2,
    "cp_size": 2,
    "block_tokens": 32,
    "codec_class": "int8",
}
"""For every field of a fingerprint, a value that `TENSORS` does not have."""


def with_field(name: str, value: str | int) -> Fingerprint:
    """Return `TENSORS` with one field changed."""
    return replace(TENSORS, **{name: value})  # type: ignore[arg-type]  # checked by the class


def generator(*seeds: int) -> np.random.Generator:
    """Return a source of randomness that `seeds` alone determine."""
    return np.random.default_rng(seeds)


def draw_tokens(count: int, *seeds: int) -> list[int]:
    """Return `count` token ids below 50,000; other seeds give another prompt from token 0 on."""
    drawn: list[int] = generator(*seeds).integers(0, 50_000, count).tolist()
    return drawn


def draw_bytes(size: int, *seeds: int) -> bytes:
    """Return `size` random bytes."""
    return generator(*seeds).bytes(size)


def draw_kv(
    blocks: int, *seeds: int, fingerprint: Fingerprint = TENSORS
) -> npt.NDArray[np.generic]:
    """Return random KV of so many blocks: float16 [layers, 2, kv_heads, tokens, head_size].

    The bits are random, NaN included: compare bytes, not numbers.
    """
    shape = BlockLayout.of(fingerprint).sequence_shape(blocks)
    bits = generator(*seeds).integers(0, 1 << 16, shape, dtype=np.uint16)
    return bits.view(np.float16)


def marked(marker: bytes, size: int, *seeds: int) -> bytes:
    """Return `size` random bytes that hold `marker` once, in the middle."""
    filling = bytearray(draw_bytes(size, *seeds))
    start = (size - len(marker)) // 2
    filling[start : start + len(marker)] = marker
    return bytes(filling)
