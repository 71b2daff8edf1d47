"""Where a fetch puts its bytes: the caller's tensor or buffer, or memory of its own.

Bytes are written as they arrive, before their checksums are known. `finish` therefore zeroes
all that lies behind the intact prefix, and only then may anyone look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from kvorum.client.sources import check_kv
from kvorum.client.tensors import STORAGE_DTYPE, Array, Into, byte_view, host_array, is_array
from kvorum.core.errors import ChecksumError, InvalidArgumentError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.layout import BlockLayout

_AXES: Final = 5


class Destination(Protocol):
    """The bytes of the blocks of one fetch, by position from 0."""

    def begin(self, position: int, size: int) -> None:
        """Prepare for a block of `size` bytes; it may be begun again after a failure.

        Raises:
            ChecksumError: a block here has another size.
        """

    def write(self, position: int, offset: int, data: memoryview) -> None:
        """Put bytes at an offset inside a block that was begun; they fit."""

    def finish(self, blocks: int) -> None:
        """Keep the first `blocks` blocks and zero everything behind them."""

    def kv(self, blocks: int) -> Array | None:
        """Return the first blocks as [layers, 2, kv_heads, tokens, head_size], if any."""

    def views(self, blocks: int) -> list[memoryview]:
        """Return the bytes of each of the first blocks."""


class TensorDestination:
    """A tensor [layers, 2, kv_heads, tokens, head_size]; blocks lie side by side on its tokens.

    Attributes:
        array: the tensor, in any strides, writable.
        layout: shape of one block.
        blocks: blocks that are expected.
    """

    def __init__(self, array: Array, layout: BlockLayout, blocks: int) -> None:
        self.array = array[:, :, :, : blocks * layout.block_tokens]
        self.layout = layout
        self.blocks = blocks
        self._rows: dict[int, Array] = {}

    def begin(self, position: int, size: int) -> None:
        """Prepare for a block; see `Destination`."""
        _check_size(size, self.layout.part_bytes)
        if position not in self._rows:
            self._rows[position] = self._open(position)

    def _block(self, position: int) -> Array:
        tokens = self.layout.block_tokens
        return self.array[:, :, :, position * tokens : (position + 1) * tokens]

    def _open(self, position: int) -> Array:
        """Return the block as rows of bytes: a view if its strides allow, or memory of its own."""
        rows = _as_rows(self._block(position))
        if rows is not None:
            return rows
        row_bytes = self.layout.block_tokens * self.layout.head_size * self.layout.item_bytes
        return np.zeros((self.layout.part_bytes // row_bytes, row_bytes), dtype=np.uint8)

    def write(self, position: int, offset: int, data: memoryview) -> None:
        """Scatter bytes over the rows of a block; see `Destination`."""
        rows = self._rows[position]
        width = rows.shape[1]
        octets = np.frombuffer(data, dtype=np.uint8)
        row, column = divmod(offset, width)
        if column:
            head = octets[: width - column]
            rows[row, column : column + head.size] = head
            octets, row = octets[head.size :], row + 1
        full = octets.size // width
        rows[row : row + full] = octets[: full * width].reshape(full, width)
        tail = octets[full * width :]
        if tail.size:
            rows[row + full, : tail.size] = tail

    def finish(self, blocks: int) -> None:
        """Keep the first blocks; see `Destination`."""
        for position in range(blocks):
            rows, block = self._rows[position], self._block(position)
            if not np.may_share_memory(rows, block):
                block[...] = rows.reshape(-1).view(block.dtype).reshape(block.shape)
        self._rows.clear()
        self.array[:, :, :, blocks * self.layout.block_tokens :] = 0

    def kv(self, blocks: int) -> Array:
        """Return a view of the first blocks."""
        return self.array[:, :, :, : blocks * self.layout.block_tokens]

    def views(self, blocks: int) -> list[memoryview]:
        """Return copies: in the tensor, a block's bytes are not contiguous."""
        copies = self.layout.split(self.kv(blocks), blocks) if blocks else ()
        return [byte_view(copy, "kv", writable=False) for copy in copies]


class PackedDestination:
    """One buffer that holds the blocks one after the other.

    Attributes:
        buffer: the bytes, writable.
        sizes: bytes of each block that is expected.
        layout: shape of a block, and its element type; None for opaque blocks.
    """

    def __init__(
        self, buffer: memoryview, sizes: Sequence[int], layout: BlockLayout | None, dtype: str
    ) -> None:
        self.sizes = tuple(sizes)
        self.layout = layout
        self._dtype = STORAGE_DTYPE[dtype]
        self._starts = [0]
        for size in sizes:
            self._starts.append(self._starts[-1] + size)
        self.buffer = buffer[: self._starts[-1]]
        self._octets: Array = np.frombuffer(self.buffer, dtype=np.uint8)

    def begin(self, position: int, size: int) -> None:
        """Prepare for a block; see `Destination`."""
        _check_size(size, self.sizes[position])

    def write(self, position: int, offset: int, data: memoryview) -> None:
        """Copy bytes to their place; see `Destination`."""
        start = self._starts[position] + offset
        self._octets[start : start + data.nbytes] = np.frombuffer(data, dtype=np.uint8)

    def finish(self, blocks: int) -> None:
        """Keep the first blocks; see `Destination`."""
        self._octets[self._starts[blocks] :] = 0

    def kv(self, blocks: int) -> Array | None:
        """Return the first blocks put together, a copy; None for opaque blocks."""
        if self.layout is None:
            return None
        octets = self._octets[: self._starts[blocks]]
        return self.layout.join(octets.view(self._dtype).reshape(blocks, *self.layout.shape))

    def views(self, blocks: int) -> list[memoryview]:
        """Return views of the buffer."""
        return [
            self.buffer[start : start + size]
            for start, size in zip(self._starts, self.sizes[:blocks], strict=False)
        ]


class LooseDestination:
    """Memory of its own for each block, of the size that the block turns out to have.

    Attributes:
        size_max: bytes that a block may have.
    """

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._blocks: dict[int, Array] = {}

    def begin(self, position: int, size: int) -> None:
        """Take memory for a block; see `Destination`."""
        if not 0 < size <= self.size_max:
            raise ChecksumError(
                f"a block has {size} bytes", field="frame_sizes", limit=f"{self.size_max} bytes"
            )
        self._blocks[position] = np.empty(size, dtype=np.uint8)

    def write(self, position: int, offset: int, data: memoryview) -> None:
        """Copy bytes to their place; see `Destination`."""
        octets = np.frombuffer(data, dtype=np.uint8)
        self._blocks[position][offset : offset + data.nbytes] = octets

    def finish(self, blocks: int) -> None:
        """Keep the first blocks and forget the others."""
        self._blocks = {position: self._blocks[position] for position in range(blocks)}

    def kv(self, blocks: int) -> None:  # noqa: ARG002  # opaque blocks have no shape
        """Return nothing: opaque blocks have no shape."""
        return

    def views(self, blocks: int) -> list[memoryview]:
        """Return the blocks' memory."""
        return [self._blocks[position].data for position in range(blocks)]


def _check_size(size: int, want: int) -> None:
    if size != want:
        raise ChecksumError(
            f"a block has {size} bytes", field="frame_sizes", limit=f"exactly {want} bytes"
        )


def _as_rows(block: Array) -> Array | None:
    """Return [layers, 2, kv_heads, tokens, head_size] as [rows, bytes], or None if a copy would be.

    A row is the run of bytes of one layer, K or V, and head.
    """
    shape, strides, item = block.shape, block.strides, block.itemsize
    width = shape[3] * shape[4] * item
    regular = (
        (strides[4] == item or shape[4] == 1)
        and (strides[3] == shape[4] * item or shape[3] == 1)
        and (strides[1] == shape[2] * strides[2])
        and (strides[0] == shape[1] * strides[1] or shape[0] == 1)
    )
    if not regular:
        return None
    base = block[0, 0, 0, 0, :1].view(np.uint8)
    rows = shape[0] * shape[1] * shape[2]
    return np.lib.stride_tricks.as_strided(base, (rows, width), (strides[2], 1))


def open_destination(
    into: Into | None,
    fingerprint: Fingerprint,
    sizes: Sequence[int],
    layers: tuple[int, int] | None,
) -> Destination:
    """Return the destination for blocks of these sizes, in bytes of one part.

    Raises:
        InvalidArgumentError: `into` has another shape or element type, is too small, read-only or
            not contiguous, or cannot hold what is fetched; the message names what was expected.
    """
    if fingerprint.layout == "opaque":
        return _open_opaque(into, fingerprint, sizes)
    layout = part_layout(fingerprint, layers)
    if into is None:
        shape = layout.sequence_shape(len(sizes))
        fresh = np.empty(shape, dtype=STORAGE_DTYPE[fingerprint.kv_dtype])
        return TensorDestination(fresh, layout, len(sizes))
    if is_array(into) and len(into.shape) == _AXES:
        check_kv(into, "into", fingerprint.kv_dtype, layout, len(sizes))
        array = host_array(into, "into", writable=True)
        return TensorDestination(array, layout, len(sizes))
    packed = [layout.part_bytes] * len(sizes)
    return PackedDestination(_room(into, packed), packed, layout, fingerprint.kv_dtype)


def _open_opaque(into: Into | None, fingerprint: Fingerprint, sizes: Sequence[int]) -> Destination:
    if into is None:
        return LooseDestination(max(sizes, default=1))
    if fingerprint.parts > 1:
        raise InvalidArgumentError(
            "the sizes of opaque parts are not known before they arrive",
            field="into",
            limit="None for opaque blocks of several parts",
        )
    return PackedDestination(_room(into, sizes), sizes, None, fingerprint.kv_dtype)


def _room(into: Into, sizes: Sequence[int]) -> memoryview:
    buffer = byte_view(into, "into", writable=True)
    if buffer.nbytes < sum(sizes):
        raise InvalidArgumentError(
            f"into has {buffer.nbytes} bytes", field="into", limit=f"at least {sum(sizes)} bytes"
        )
    return buffer


def part_layout(fingerprint: Fingerprint, layers: tuple[int, int] | None) -> BlockLayout:
    """Return the layout of one rank's part, or of a range of its layers.

    Raises:
        InvalidArgumentError: the layout has no layers, or not these.
    """
    layout = BlockLayout.of(fingerprint)
    if layers is None:
        return layout
    begin, end = layers
    return BlockLayout(
        layers=end - begin,
        kv_heads=layout.kv_heads,
        block_tokens=layout.block_tokens,
        head_size=layout.head_size,
        item_bytes=layout.item_bytes,
    )
