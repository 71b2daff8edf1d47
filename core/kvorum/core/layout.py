"""Geometry of a block's bytes: shapes, part sizes, layer frames, and the way back to tensors.

A part's payload is the share that one rank holds of one block, in the layout LKHTD:
[layers, 2, kv_heads, block_tokens, head_size], C order, little-endian, K before V. One *frame*
is one layer, so that a range of layers can be read, verified and decoded alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from kvorum.core.errors import InvalidArgumentError
from kvorum.core.fingerprint import DTYPE_BYTES, Fingerprint


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Shape of one part of one block.

    Attributes:
        layers: layers in this part.
        kv_heads: KV heads in this part.
        block_tokens: tokens a block.
        head_size: elements a head.
        item_bytes: bytes an element.
    """

    layers: int
    kv_heads: int
    block_tokens: int
    head_size: int
    item_bytes: int

    @classmethod
    def of(cls, fingerprint: Fingerprint) -> Self:
        """Return the layout of one rank's part.

        Raises:
            InvalidArgumentError: the layout is opaque and so has no shape, or the context is split
                over ranks, which each engine does in its own order: such parts travel as opaque.
        """
        if fingerprint.layout == "opaque":
            raise InvalidArgumentError(
                "an opaque block has no shape", field="fingerprint.layout", limit="LKHTD"
            )
        if fingerprint.cp_size != 1:
            raise InvalidArgumentError(
                f"cp_size is {fingerprint.cp_size}",
                field="fingerprint.cp_size",
                limit="1 for the layout LKHTD",
            )
        return cls(
            layers=fingerprint.layers // fingerprint.pp_size,
            kv_heads=fingerprint.kv_heads // fingerprint.tp_size,
            block_tokens=fingerprint.block_tokens,
            head_size=fingerprint.head_size,
            item_bytes=DTYPE_BYTES[fingerprint.kv_dtype],
        )

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Shape of one part: [layers, 2, kv_heads, block_tokens, head_size]."""
        return (self.layers, 2, self.kv_heads, self.block_tokens, self.head_size)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one layer of one part."""
        return 2 * self.kv_heads * self.block_tokens * self.head_size * self.item_bytes

    @property
    def part_bytes(self) -> int:
        """Bytes of one part."""
        return self.layers * self.frame_bytes

    def sequence_shape(self, blocks: int) -> tuple[int, int, int, int, int]:
        """Shape of `blocks` blocks as one tensor: [layers, 2, kv_heads, tokens, head_size]."""
        return (self.layers, 2, self.kv_heads, blocks * self.block_tokens, self.head_size)

    def split(self, sequence: npt.NDArray[np.generic], blocks: int) -> npt.NDArray[np.generic]:
        """Cut [layers, 2, kv_heads, tokens, head_size] into [blocks, *shape]; one copy.

        Tokens beyond `blocks` full blocks are left out.

        Raises:
            InvalidArgumentError: another shape or element size, or too few tokens.
        """
        self._check(sequence, blocks)
        tokens = blocks * self.block_tokens
        cut = sequence[:, :, :, :tokens].reshape(
            self.layers, 2, self.kv_heads, blocks, self.block_tokens, self.head_size
        )
        return np.ascontiguousarray(np.moveaxis(cut, 3, 0))

    def join(
        self, blocks: npt.NDArray[np.generic], out: npt.NDArray[np.generic] | None = None
    ) -> npt.NDArray[np.generic]:
        """Put [blocks, *shape] together as [layers, 2, kv_heads, tokens, head_size]; one copy.

        `out` may hold more tokens than the blocks fill; the part that they fill is returned.

        Raises:
            InvalidArgumentError: `out` has another shape or element size, or too few tokens.
        """
        count = blocks.shape[0]
        if out is None:
            out = np.empty(self.sequence_shape(count), dtype=blocks.dtype)
        self._check(out, count)
        view = out[:, :, :, : count * self.block_tokens]
        for index in range(count):
            start = index * self.block_tokens
            view[:, :, :, start : start + self.block_tokens] = blocks[index]
        return view

    def _check(self, sequence: npt.NDArray[np.generic], blocks: int) -> None:
        want = self.sequence_shape(blocks)
        got = sequence.shape
        if len(got) != len(want) or got[:3] != want[:3] or got[4] != want[4] or got[3] < want[3]:
            raise InvalidArgumentError(
                f"kv has the shape {list(got)}",
                field="kv",
                limit=f"[layers, 2, kv_heads, tokens, head_size] of {list(want)} or more tokens",
            )
        if sequence.dtype.itemsize != self.item_bytes:
            raise InvalidArgumentError(
                f"kv has elements of type {sequence.dtype}",
                field="kv",
                limit=f"{self.item_bytes} bytes an element",
            )
