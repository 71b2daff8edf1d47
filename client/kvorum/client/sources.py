"""Where a store takes its bytes from: the caller's tensor or buffers, read in place.

A block's bytes are a list of contiguous runs, in the order of the block's layout. Runs are views
of the caller's memory wherever they are long enough to be worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Protocol

import numpy as np

from kvorum.client.tensors import (
    STORAGE_DTYPE,
    Array,
    Kv,
    Tensor,
    byte_view,
    dtype_name,
    host_array,
    is_array,
)
from kvorum.core import limits
from kvorum.core.checksum import crc32c
from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.layout import BlockLayout

_RUN_BYTES_MIN: Final = 4_096  # handling a run costs about as much as copying this many bytes


class Source(Protocol):
    """The bytes of the blocks of one store, by position from 0."""

    def frame_sizes(self, position: int) -> tuple[int, ...]:
        """Return the bytes of each layer frame of a block."""

    def runs(self, position: int) -> list[memoryview]:
        """Return the bytes of a block as contiguous runs."""


@dataclass(frozen=True, slots=True)
class BufferSource:
    """One contiguous buffer for each block.

    Attributes:
        buffers: the bytes of each block.
        sizes: bytes of each layer frame of a block; None for blocks of one frame of any size.
    """

    buffers: tuple[memoryview, ...]
    sizes: tuple[int, ...] | None

    def frame_sizes(self, position: int) -> tuple[int, ...]:
        """Return the bytes of each layer frame of a block."""
        return self.sizes or (self.buffers[position].nbytes,)

    def runs(self, position: int) -> list[memoryview]:
        """Return the block's buffer."""
        return [self.buffers[position]]


@dataclass(frozen=True, slots=True)
class TensorSource:
    """One tensor [layers, 2, kv_heads, tokens, head_size] over all blocks.

    Attributes:
        array: the tensor, in any strides.
        layout: shape of one block.
    """

    array: Array
    layout: BlockLayout

    def frame_sizes(self, position: int) -> tuple[int, ...]:  # noqa: ARG002  # all are equal
        """Return the bytes of each layer frame of a block."""
        return (self.layout.frame_bytes,) * self.layout.layers

    def runs(self, position: int) -> list[memoryview]:
        """Return the runs of a block: views of the tensor, or one copy if runs would be short."""
        tokens = self.layout.block_tokens
        block = self.array[:, :, :, position * tokens : (position + 1) * tokens]
        run_bytes = tokens * self.layout.head_size * self.layout.item_bytes
        by_row = block.strides[3:] == (block.shape[4] * block.itemsize, block.itemsize)
        if run_bytes < _RUN_BYTES_MIN or not by_row:
            return [np.ascontiguousarray(block).reshape(-1).view(np.uint8).data]
        octets = block.view(np.uint8)
        heads = product(*(range(size) for size in block.shape[:3]))
        return [octets[head].data.cast("B") for head in heads]


def checksums(runs: Sequence[memoryview], frame_sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the CRC-32C of each frame of a block whose bytes are `runs`.

    `frame_sizes` add up to the bytes of the runs.
    """
    sums: list[int] = []
    pending = iter(runs)
    run = memoryview(b"")
    for size in frame_sizes:
        left, crc = size, 0
        while left:
            if not run.nbytes:
                run = next(pending)
            crc = crc32c(run[:left], crc)
            taken = min(left, run.nbytes)
            left, run = left - taken, run[taken:]
        sums.append(crc)
    return tuple(sums)


def open_source(kv: Kv, fingerprint: Fingerprint, blocks: int) -> Source:
    """Return the source for `blocks` blocks that the caller passed as `kv`.

    Raises:
        InvalidArgumentError: `kv` has another shape, element type or number of buffers, or lacks
            tokens; the message names what was expected.
        TooLargeError: a block is over `limits.PART_BYTES_MAX`.
    """
    shaped = fingerprint.layout != "opaque"
    if is_array(kv):
        if not shaped:
            raise InvalidArgumentError(
                "kv is one array and the layout is opaque",
                field="kv",
                limit="a sequence of buffers, one for each block",
            )
        return _tensor_source(kv, fingerprint, blocks)
    if isinstance(kv, str | bytes | bytearray | memoryview) or not isinstance(kv, Sequence):
        raise InvalidArgumentError(
            f"kv is a {type(kv).__name__}",
            field="kv",
            limit="an array, a tensor, or a sequence of buffers, one for each block",
        )
    if len(kv) != blocks:
        raise InvalidArgumentError(
            f"kv has {len(kv)} buffers for {blocks} blocks",
            field="kv",
            limit="one buffer for each full block from first_block on",
        )
    buffers = tuple(byte_view(item, f"kv[{at}]", writable=False) for at, item in enumerate(kv))
    sizes = None
    if shaped:
        layout = BlockLayout.of(fingerprint)
        sizes = (layout.frame_bytes,) * layout.layers
    _check_sizes(buffers, sum(sizes) if sizes else None)
    return BufferSource(buffers, sizes)


def _check_sizes(buffers: Sequence[memoryview], want: int | None) -> None:
    for at, buffer in enumerate(buffers):
        if want is not None and buffer.nbytes != want:
            raise InvalidArgumentError(
                f"kv[{at}] has {buffer.nbytes} bytes", field=f"kv[{at}]", limit=f"{want} bytes"
            )
        if not buffer.nbytes:
            raise InvalidArgumentError(
                f"kv[{at}] is empty", field=f"kv[{at}]", limit="at least 1 byte"
            )
        if buffer.nbytes > limits.PART_BYTES_MAX:
            raise TooLargeError(
                f"kv[{at}] has {buffer.nbytes} bytes",
                field=f"kv[{at}]",
                limit=f"{limits.PART_BYTES_MAX} bytes",
            )


def _tensor_source(kv: Array | Tensor, fingerprint: Fingerprint, blocks: int) -> TensorSource:
    layout = BlockLayout.of(fingerprint)
    check_kv(kv, "kv", fingerprint.kv_dtype, layout, blocks)
    if layout.part_bytes > limits.PART_BYTES_MAX:
        raise TooLargeError(
            f"a block has {layout.part_bytes} bytes",
            field="kv",
            limit=f"{limits.PART_BYTES_MAX} bytes a part",
        )
    return TensorSource(host_array(kv, "kv", writable=False), layout)


def check_kv(
    kv: Array | Tensor, field: str, kv_dtype: str, layout: BlockLayout, blocks: int
) -> None:
    """Check shape and element type of an array or tensor that holds `blocks` blocks.

    Raises:
        InvalidArgumentError: names `field` and what was expected.
    """
    want, got = layout.sequence_shape(blocks), tuple(kv.shape)
    if len(got) != len(want) or got[:3] != want[:3] or got[4] != want[4] or got[3] < want[3]:
        raise InvalidArgumentError(
            f"{field} has the shape {list(got)}",
            field=field,
            limit=f"[layers, 2, kv_heads, tokens, head_size] of {list(want)} or more tokens",
        )
    names = {kv_dtype, STORAGE_DTYPE[kv_dtype].name}
    if dtype_name(kv) not in names:
        raise InvalidArgumentError(
            f"{field} has elements of type {dtype_name(kv)}",
            field=field,
            limit=" or ".join(sorted(names)),
        )
