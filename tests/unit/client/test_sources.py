"""Sources: a store reads exactly the caller's bytes, from arrays, tensors and buffers."""

from __future__ import annotations

import mmap
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.client.sources import checksums, open_source
from kvorum.client.tensors import STORAGE_DTYPE
from kvorum.core import limits
from kvorum.core.checksum import frame_checksums
from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.core.layout import BlockLayout
from tests.unit.client.samples import build, noise

LONG_ROWS = build(head_size=128, block_tokens=32)  # rows of 8 KiB: read in place
SHORT_ROWS = build()  # rows of 256 bytes: copied block by block


def expected(kv: Any, fingerprint: Any, blocks: int) -> list[bytes]:
    layout = BlockLayout.of(fingerprint)
    return [block.tobytes() for block in layout.split(kv, blocks)]


def read(source: Any, blocks: int) -> list[bytes]:
    return [b"".join(source.runs(at)) for at in range(blocks)]


def kv_of(fingerprint: Any, blocks: int, rest: int = 0) -> Any:
    layout = BlockLayout.of(fingerprint)
    shape = list(layout.sequence_shape(blocks))
    shape[3] += rest
    return noise(tuple(shape), STORAGE_DTYPE[fingerprint.kv_dtype].str, seed=blocks)


@pytest.mark.parametrize("fingerprint", [LONG_ROWS, SHORT_ROWS], ids=["long rows", "short rows"])
@pytest.mark.parametrize("rest", [0, 5])
def test_a_tensor_is_cut_into_blocks(fingerprint: Any, rest: int) -> None:
    kv = kv_of(fingerprint, 3, rest)
    source = open_source(kv, fingerprint, 3)
    assert read(source, 3) == expected(kv, fingerprint, 3)


def test_long_rows_are_read_in_place() -> None:
    kv = kv_of(LONG_ROWS, 2).copy()
    runs = open_source(kv, LONG_ROWS, 2).runs(1)
    kv[...] = 0
    assert not any(b"".join(runs))


@given(st.permutations(range(5)), st.sampled_from([LONG_ROWS, SHORT_ROWS]))
def test_strides_do_not_matter(order: list[int], fingerprint: Any) -> None:
    """Lay the same tensor out in memory in any order of axes, backwards heads among them."""
    kv = kv_of(fingerprint, 2)
    laid = np.ascontiguousarray(np.transpose(kv, order)).transpose(np.argsort(order))
    flipped = kv[:, :, ::-1]
    assert read(open_source(laid, fingerprint, 2), 2) == expected(kv, fingerprint, 2)
    assert read(open_source(flipped, fingerprint, 2), 2) == expected(flipped, fingerprint, 2)


def test_a_window_of_a_longer_cache_is_read_in_place() -> None:
    whole = kv_of(LONG_ROWS, 5)
    window = whole[:, :, :, 32:96]
    assert read(open_source(window, LONG_ROWS, 2), 2) == expected(window, LONG_ROWS, 2)


def test_buffers_of_every_kind_are_read_in_place() -> None:
    opaque = build(layout="opaque")
    data = bytes(range(200))
    with mmap.mmap(-1, 200) as mapped:
        mapped.write(data)
        buffers: list[Any] = [
            data,
            bytearray(data),
            memoryview(data),
            mapped,
            np.frombuffer(data, dtype=np.uint16),
        ]
        source = open_source(buffers, opaque, len(buffers))
        assert read(source, len(buffers)) == [data] * len(buffers)
        assert source.frame_sizes(0) == (200,)
        del source


def test_buffers_of_a_shaped_layout_have_a_frame_for_each_layer() -> None:
    kv = kv_of(SHORT_ROWS, 2)
    blocks = expected(kv, SHORT_ROWS, 2)
    source = open_source(blocks, SHORT_ROWS, 2)
    layout = BlockLayout.of(SHORT_ROWS)
    assert source.frame_sizes(1) == (layout.frame_bytes,) * layout.layers
    assert read(source, 2) == blocks


@given(
    st.lists(st.binary(max_size=20), max_size=8),
    st.lists(st.integers(0, 9), max_size=6),
)
def test_checksums_are_those_of_the_joined_bytes(runs: list[bytes], cuts: list[int]) -> None:
    data = b"".join(runs)
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    sizes = [end - begin for begin, end in pairwise(edges)]
    views = [memoryview(run) for run in runs]
    assert checksums(views, sizes) == frame_checksums(memoryview(data), sizes)


OPAQUE = build(layout="opaque")
GOOD = kv_of(SHORT_ROWS, 2)


@pytest.mark.parametrize(
    ("kv", "fingerprint", "field"),
    [
        (GOOD[0], SHORT_ROWS, "kv"),
        (GOOD[:2], SHORT_ROWS, "kv"),
        (GOOD[:, :, :, :31], SHORT_ROWS, "kv"),
        (GOOD.astype(np.float32), SHORT_ROWS, "kv"),
        (GOOD.view(np.int16), SHORT_ROWS, "kv"),
        (GOOD.astype(">f2"), SHORT_ROWS, "kv"),
        (GOOD, OPAQUE, "kv"),
        ([b"x"], OPAQUE, "kv"),
        ([b"x", b"y", b"z"], OPAQUE, "kv"),
        ([b"x", b""], OPAQUE, "kv[1]"),
        ([b"x", "text"], OPAQUE, "kv[1]"),
        ([b"x", memoryview(bytes(10))[::2]], OPAQUE, "kv[1]"),
        ([b"x", np.zeros((4, 4))[:, 1]], OPAQUE, "kv[1]"),
        ([b"x", b"y"], SHORT_ROWS, "kv[0]"),
        (b"bytes", OPAQUE, "kv"),
        (None, SHORT_ROWS, "kv"),
        ({1: b"x"}, OPAQUE, "kv"),
    ],
)
def test_what_cannot_be_the_kv_of_two_blocks_is_refused(
    kv: Any, fingerprint: Any, field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        open_source(kv, fingerprint, 2)
    assert caught.value.field == field
    assert caught.value.limit


def test_a_block_over_the_limit_is_refused() -> None:
    huge = np.zeros(limits.PART_BYTES_MAX + 1, dtype=np.uint8)
    with pytest.raises(TooLargeError) as caught:
        open_source([huge], OPAQUE, 1)
    assert caught.value.field == "kv[0]"
    assert str(limits.PART_BYTES_MAX) in caught.value.limit
