"""Destinations: bytes land where they belong, and what did not arrive is zero."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.client.destinations import Destination, LooseDestination, open_destination
from kvorum.client.tensors import STORAGE_DTYPE
from kvorum.core.errors import ChecksumError, InvalidArgumentError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.layout import BlockLayout
from tests.unit.client.samples import build, noise

SHAPED = build()
OPAQUE = build(layout="opaque")
PART = BlockLayout.of(SHAPED).part_bytes


def blocks_of(fingerprint: Fingerprint, count: int, seed: int = 3) -> Any:
    """Return noise as [blocks, *shape of a block]."""
    layout = BlockLayout.of(fingerprint)
    return noise((count, *layout.shape), STORAGE_DTYPE[fingerprint.kv_dtype].str, seed)


def write(destination: Destination, position: int, data: bytes, step: int) -> None:
    destination.begin(position, len(data))
    for at in range(0, len(data), step):
        destination.write(position, at, memoryview(data)[at : at + step])


@given(st.integers(1, 4), st.integers(9, 2 * PART), st.data())
def test_a_tensor_is_put_together_from_pieces_of_any_size(
    count: int, step: int, data: st.DataObject
) -> None:
    blocks = blocks_of(SHAPED, count)
    destination = open_destination(None, SHAPED, [PART] * count, None)
    for position in data.draw(st.permutations(range(count))):
        write(destination, position, blocks[position].tobytes(), step)
    destination.finish(count)
    kv = destination.kv(count)
    assert kv is not None
    assert kv.tobytes() == BlockLayout.of(SHAPED).join(blocks).tobytes()
    assert [bytes(view) for view in destination.views(count)] == [b.tobytes() for b in blocks]


@given(st.permutations(range(5)), st.integers(0, 20), st.integers(9, 999))
def test_the_strides_of_the_callers_tensor_do_not_matter(
    order: list[int], rest: int, step: int
) -> None:
    layout = BlockLayout.of(SHAPED)
    shape = np.add(layout.sequence_shape(2), [0, 0, 0, rest, 0])
    memory = np.full(shape[order], 7, dtype=np.float16)
    into = memory.transpose(np.argsort(order))
    blocks = blocks_of(SHAPED, 2)
    destination = open_destination(into, SHAPED, [PART] * 2, None)
    for position in (1, 0):
        write(destination, position, blocks[position].tobytes(), step)
    destination.finish(2)
    assert into[:, :, :, :32].tobytes() == layout.join(blocks).tobytes()
    assert (into[:, :, :, 32:] == 7).all(), "tokens behind the hit are the caller's"


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4])
def test_a_slice_of_a_larger_tensor_is_filled_and_nothing_beside_it(axis: int) -> None:
    """Every other index along an axis, so that rows lie at irregular distances."""
    layout = BlockLayout.of(SHAPED)
    shape = list(layout.sequence_shape(2))
    shape[axis] *= 2
    larger = np.full(shape, 7, dtype=np.float16)
    chosen = [slice(None)] * 5
    chosen[axis] = slice(None, None, 2)
    beside = [slice(None)] * 5
    beside[axis] = slice(1, None, 2)
    blocks = blocks_of(SHAPED, 2)
    destination = open_destination(larger[tuple(chosen)], SHAPED, [PART] * 2, None)
    for position in range(2):
        write(destination, position, blocks[position].tobytes(), 777)
    destination.finish(2)
    assert larger[tuple(chosen)].tobytes() == layout.join(blocks).tobytes()
    assert (larger[tuple(beside)] == 7).all()


@pytest.mark.parametrize("heads", [slice(0, 2), slice(2, 4)])
def test_some_heads_of_a_larger_tensor(heads: slice) -> None:
    layout = BlockLayout.of(SHAPED)
    larger = np.full((4, 2, 4, 16, 8), 7, dtype=np.float16)
    blocks = blocks_of(SHAPED, 1)
    destination = open_destination(larger[:, :, heads], SHAPED, [PART], None)
    write(destination, 0, blocks[0].tobytes(), 777)
    destination.finish(1)
    assert larger[:, :, heads].tobytes() == layout.join(blocks).tobytes()
    assert (larger == 7).sum() >= larger.size // 2


@pytest.mark.parametrize("kind", ["array", "buffer"])
def test_what_lies_behind_the_prefix_is_zero(kind: str) -> None:
    layout = BlockLayout.of(SHAPED)
    into = np.full(layout.sequence_shape(3), 7, dtype=np.float16)
    destination = open_destination(
        into if kind == "array" else into.reshape(-1), SHAPED, [PART] * 3, None
    )
    blocks = blocks_of(SHAPED, 3)
    for position in (0, 1, 2):
        write(destination, position, blocks[position].tobytes(), 1000)
    destination.finish(1)
    kept = [bytes(view) for view in destination.views(1)]
    assert kept == [blocks[0].tobytes()]
    tail = into[:, :, :, 16:] if kind == "array" else into.reshape(-1)[PART // 2 :]
    assert not tail.any()
    kv = destination.kv(1)
    assert kv is not None
    assert kv.shape == layout.sequence_shape(1)


def test_a_block_begun_again_is_written_again() -> None:
    blocks = blocks_of(SHAPED, 1)
    destination = open_destination(None, SHAPED, [PART], None)
    write(destination, 0, bytes(PART), 700)
    write(destination, 0, blocks[0].tobytes(), 300)
    destination.finish(1)
    assert bytes(destination.views(1)[0]) == blocks[0].tobytes()


@pytest.mark.parametrize("make", [bytearray, lambda n: mmap.mmap(-1, n), np.empty])
def test_flat_buffers_of_every_kind_take_blocks_in_order(make: Any) -> None:
    sizes = [10, 20, 30]
    into = make(100)
    destination = open_destination(into, OPAQUE, sizes, None)
    data = [bytes([at + 1]) * size for at, size in enumerate(sizes)]
    for position, block in enumerate(data):
        write(destination, position, block, 7)
    destination.finish(2)
    got = bytes(memoryview(into).cast("B"))
    assert got[:60] == data[0] + data[1] + bytes(30)
    assert destination.kv(2) is None
    assert [bytes(view) for view in destination.views(2)] == data[:2]
    if isinstance(into, mmap.mmap):
        del destination
        into.close()


def test_loose_blocks_have_the_size_that_they_turn_out_to_have() -> None:
    destination = LooseDestination(50)
    write(destination, 0, b"a" * 50, 9)
    write(destination, 1, b"b", 9)
    destination.finish(2)
    assert [bytes(view) for view in destination.views(2)] == [b"a" * 50, b"b"]


@pytest.mark.parametrize(
    ("into", "fingerprint", "size"),
    [(None, SHAPED, PART + 1), (bytearray(100), OPAQUE, 11), (None, OPAQUE, 11)],
)
def test_a_block_of_another_size_is_refused(into: Any, fingerprint: Fingerprint, size: int) -> None:
    destination = open_destination(into, fingerprint, [10], None)
    with pytest.raises(ChecksumError):
        destination.begin(0, size)


def test_a_range_of_layers_has_fewer_layers() -> None:
    into = np.zeros((2, 2, 2, 16, 8), dtype=np.float16)
    destination = open_destination(into, SHAPED, [PART], (1, 3))
    data = noise((PART // 2,), "u1").tobytes()
    write(destination, 0, data, 100)
    destination.finish(1)
    assert into.tobytes() == data


SHAPE = (4, 2, 2, 32, 8)
TOO_LITTLE = [
    "tokens", "layers", "type", "order", "read-only", "bytes", "short", "gaps", "text", "number"
]  # fmt: skip


@pytest.mark.parametrize(
    "into",
    [
        np.zeros((4, 2, 2, 31, 8), np.float16),
        np.zeros((3, 2, 2, 32, 8), np.float16),
        np.zeros(SHAPE, np.float32),
        np.zeros(SHAPE, ">f2"),
        np.broadcast_to(np.float16(0), SHAPE),
        bytes(2 * PART),
        bytearray(2 * PART - 1),
        memoryview(bytearray(4 * PART))[::2],
        "text",
        7,
    ],
    ids=TOO_LITTLE,
)
def test_what_cannot_take_two_blocks_is_refused(into: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        open_destination(into, SHAPED, [PART] * 2, None)
    assert caught.value.field == "into"
    assert caught.value.limit


def test_opaque_parts_cannot_go_into_one_buffer() -> None:
    parts = build(layout="opaque", tp_size=2)
    with pytest.raises(InvalidArgumentError) as caught:
        open_destination(bytearray(100), parts, [10], None)
    assert caught.value.field == "into"
