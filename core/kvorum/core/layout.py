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

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError
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
        kv_dtype: element type, a key of `DTYPE_BYTES`; "" takes any type of `item_bytes` bytes.
    """

    layers: int
    kv_heads: int
    block_tokens: int
    head_size: int
    item_bytes: int
    kv_dtype: str = ""

    @classmethod
    def of(cls, fingerprint: Fingerprint) -> Self:
        """Return the layout of one rank's part.

        Raises:
            InvalidArgumentError: the layout is opaque and so has no shape, or the context is split
                over ranks, which each engine does in its own order: such parts travel as opaque.
            TooLargeError: a part would have too many layers or bytes to be stored.
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
        layout = cls(
            layers=fingerprint.layers // fingerprint.pp_size,
            kv_heads=fingerprint.kv_heads // fingerprint.tp_size,
            block_tokens=fingerprint.block_tokens,
            head_size=fingerprint.head_size,
            item_bytes=DTYPE_BYTES[fingerprint.kv_dtype],
            kv_dtype=fingerprint.kv_dtype,
        )
        if layout.layers > limits.PART_FRAMES_MAX:
            raise TooLargeError(
                f"a part has {layout.layers} layers",
                field="fingerprint.layers",
                limit=f"{limits.PART_FRAMES_MAX} layers a part",
            )
        if layout.part_bytes > limits.PART_BYTES_MAX:
            raise TooLargeError(
                f"a part has {layout.part_bytes} bytes",
                field="fingerprint.block_tokens",
                limit=f"{limits.PART_BYTES_MAX} bytes a part",
            )
        return layout

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

        Tokens beyond `blocks` full blocks are left out. The result never shares memory with
        `sequence`, which its owner may go on writing.

        Raises:
            InvalidArgumentError: another shape or element type, or too few tokens.
        """
        self._check_sequence(sequence, blocks, "kv")
        tokens = blocks * self.block_tokens
        cut = sequence[:, :, :, :tokens].reshape(
            self.layers, 2, self.kv_heads, blocks, self.block_tokens, self.head_size
        )
        return np.array(np.moveaxis(cut, 3, 0), order="C")

    def join(
        self, blocks: npt.NDArray[np.generic], out: npt.NDArray[np.generic] | None = None
    ) -> npt.NDArray[np.generic]:
        """Put [blocks, *shape] together as [layers, 2, kv_heads, tokens, head_size]; one copy.

        `out` may hold more tokens than the blocks fill; the part that they fill is returned. Bits
        are copied, never converted: blocks as uint16 into `out` as float16 keep their bits.

        Raises:
            InvalidArgumentError: `blocks` or `out` has another shape or element type, or `out`
                has too few tokens or is read-only.
        """
        if blocks.shape[1:] != self.shape:
            raise InvalidArgumentError(
                f"blocks has the shape {list(blocks.shape)}",
                field="blocks",
                limit=f"[blocks, layers, 2, kv_heads, block_tokens, head_size] of "
                f"{['n', *self.shape]}",
            )
        self._check_dtype(blocks, "blocks")
        count = blocks.shape[0]
        if out is None:
            out = np.empty(self.sequence_shape(count), dtype=blocks.dtype)
        self._check_sequence(out, count, "into")
        if not out.flags.writeable:
            raise InvalidArgumentError("into is read-only", field="into", limit="writable")
        view = out[:, :, :, : count * self.block_tokens]
        bits = blocks.view(out.dtype)
        for index in range(count):
            start = index * self.block_tokens
            view[:, :, :, start : start + self.block_tokens] = bits[index]
        return view

    def _check_sequence(self, sequence: npt.NDArray[np.generic], blocks: int, field: str) -> None:
        want = self.sequence_shape(blocks)
        got = sequence.shape
        if len(got) != len(want) or got[:3] != want[:3] or got[4] != want[4] or got[3] < want[3]:
            raise InvalidArgumentError(
                f"{field} has the shape {list(got)}",
                field=field,
                limit=f"[layers, 2, kv_heads, tokens, head_size] of {list(want)} or more tokens",
            )
        self._check_dtype(sequence, field)

    def _check_dtype(self, array: npt.NDArray[np.generic], field: str) -> None:
        """Accept the element type itself, or its bits as an unsigned integer.

        NumPy has no bfloat16 and no float8 of its own; whoever adds them gives them these names.
        """
        dtype = array.dtype
        named = not self.kv_dtype or dtype.kind == "u" or dtype.name == self.kv_dtype
        little = dtype.newbyteorder("<") == dtype
        if dtype.itemsize != self.item_bytes or not named or not little:
            raise InvalidArgumentError(
                f"{field} has elements of type {dtype.str if not little else dtype.name}",
                field=field,
                limit=f"{self.kv_dtype or 'any type'}, {self.item_bytes} bytes, little-endian",
            )
