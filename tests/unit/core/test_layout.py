"""BlockLayout: tensors are cut into blocks and put together again bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.layout import BlockLayout


def build(**changes: object) -> Fingerprint:
    fields: dict[str, object] = {
        "model": "m", "weights_revision": "r", "tokenizer": "t", "adapter": "none",
        "kv_dtype": "float16", "layout": "LKHTD", "layers": 4, "kv_heads": 2, "head_size": 8,
        "rope": "none", "tp_size": 1, "pp_size": 1, "cp_size": 1, "block_tokens": 16,
        "codec_class": "lossless",
    }  # fmt: skip
    return Fingerprint.from_mapping(fields | changes)


HALF = BlockLayout.of(build())
BRAIN = BlockLayout.of(build(kv_dtype="bfloat16"))


def noise(shape: tuple[int, ...], item_bytes: int, seed: int = 0) -> npt.NDArray[Any]:
    """Random bits, NaNs and infinities among them."""
    bits = np.random.default_rng(seed).bytes(int(np.prod(shape)) * item_bytes)
    return np.frombuffer(bits, dtype=f"<u{item_bytes}").reshape(shape)


def test_the_shape_is_that_of_one_rank() -> None:
    layout = BlockLayout.of(build(layers=8, pp_size=2, kv_heads=4, tp_size=2, kv_dtype="float32"))
    assert layout.shape == (4, 2, 2, 16, 8)
    assert layout.frame_bytes == 2 * 2 * 16 * 8 * 4
    assert layout.part_bytes == 4 * layout.frame_bytes == int(np.prod(layout.shape)) * 4
    assert layout.sequence_shape(3) == (4, 2, 2, 48, 8)


@given(
    st.tuples(*[st.integers(1, 3)] * 3),
    st.integers(0, 4),
    st.integers(0, 20),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 2**32 - 1),
)
def test_split_then_join_gives_the_same_bits(
    sizes: tuple[int, int, int], blocks: int, rest: int, item_bytes: int, seed: int
) -> None:
    layout = BlockLayout(*sizes[:2], 16, sizes[2], item_bytes)
    shape = (layout.layers, 2, layout.kv_heads, blocks * 16 + rest, layout.head_size)
    sequence = noise(shape, item_bytes, seed)
    cut = layout.split(sequence, blocks)
    assert cut.shape == (blocks, *layout.shape)
    whole = sequence[:, :, :, : blocks * 16]
    assert np.array_equal(layout.join(cut), whole)

    room = np.zeros(shape, dtype=cut.dtype)
    filled = layout.join(cut, room)
    assert np.array_equal(filled, whole)
    assert np.shares_memory(filled, room) == bool(blocks)
    assert not room[:, :, :, blocks * 16 :].any()


def test_a_block_holds_layer_by_layer_k_before_v_head_by_head() -> None:
    """The byte order that docs and other languages rely on, spelled out element by element."""
    sequence = noise(HALF.sequence_shape(2), 2)
    cut = HALF.split(sequence, 2)
    expected = b"".join(
        sequence[layer, kv, head, 16 + token].tobytes()
        for layer in range(4)
        for kv in range(2)
        for head in range(2)
        for token in range(16)
    )
    assert cut[1].tobytes() == expected
    assert cut[1].tobytes()[HALF.frame_bytes : 2 * HALF.frame_bytes] == cut[1][1].tobytes()


@pytest.mark.parametrize("blocks", [1, 2])
def test_blocks_never_share_memory_with_what_they_were_cut_from(blocks: int) -> None:
    sequence = noise(HALF.sequence_shape(blocks), 2).copy()
    cut = HALF.split(sequence, blocks)
    before = cut.copy()
    sequence[:] = 0
    assert np.array_equal(cut, before)


def test_scattered_arrays_are_cut_and_filled_alike() -> None:
    wide = noise((4, 2, 2, 32, 16), 2)
    sequence = wide[..., ::2]
    cut = HALF.split(sequence, 2)
    assert np.array_equal(cut, HALF.split(sequence.copy(), 2))
    room = np.zeros_like(wide)
    HALF.join(cut, room[..., ::2])
    assert np.array_equal(room[..., ::2], sequence)
    assert not room[..., 1::2].any()


def test_join_keeps_bits_and_never_converts_numbers() -> None:
    bits = noise((1, *HALF.shape), 2)
    floats = np.zeros(HALF.sequence_shape(1), dtype=np.float16)
    HALF.join(bits, floats)
    assert np.array_equal(floats.view(np.uint16), HALF.join(bits))
    back = np.zeros(HALF.sequence_shape(1), dtype=np.uint16)
    HALF.join(bits.view(np.float16), back)
    assert np.array_equal(back, HALF.join(bits))


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [(HALF, "<f2"), (HALF, "<u2"), (BRAIN, "<u2"), (BlockLayout(4, 2, 16, 8, 2), "<i2")],
)
def test_elements_may_be_of_the_type_itself_or_its_bits(layout: BlockLayout, dtype: str) -> None:
    assert layout.split(np.zeros(layout.sequence_shape(1), dtype=dtype), 1).dtype == dtype


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        (HALF, "<f4"), (HALF, "u1"), (HALF, "<i2"), (HALF, ">f2"), (HALF, ">u2"), (HALF, "O"),
        (BRAIN, "<f2"), (BRAIN, ">u2"), (BlockLayout(4, 2, 16, 8, 2), ">i2"),
    ],
)  # fmt: skip
def test_elements_of_another_type_or_byte_order_are_refused(
    layout: BlockLayout, dtype: str
) -> None:
    wrong: npt.NDArray[Any] = np.zeros(layout.sequence_shape(1), dtype=dtype)
    right = np.zeros((1, *layout.shape), dtype="<u2")
    with pytest.raises(InvalidArgumentError) as caught:
        layout.split(wrong, 1)
    assert caught.value.field == "kv"
    with pytest.raises(InvalidArgumentError) as caught:
        layout.join(right, wrong)
    assert caught.value.field == "into"
    with pytest.raises(InvalidArgumentError) as caught:
        layout.join(wrong.reshape(1, *layout.shape))
    assert caught.value.field == "blocks"
    assert caught.value.limit


@pytest.mark.parametrize(
    "shape",
    [
        (4, 2, 2, 31, 8), (5, 2, 2, 32, 8), (3, 2, 2, 32, 8), (4, 1, 2, 32, 8), (4, 2, 1, 32, 8),
        (4, 2, 2, 32, 4), (4, 2, 2, 32), (1, 4, 2, 2, 32, 8), (4096,), (),
    ],
)  # fmt: skip
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    wrong = np.zeros(shape, dtype=np.float16)
    with pytest.raises(InvalidArgumentError) as caught:
        HALF.split(wrong, 2)
    assert (caught.value.field, "[4, 2, 2, 32, 8]" in caught.value.limit) == ("kv", True)
    with pytest.raises(InvalidArgumentError) as caught:
        HALF.join(np.zeros((2, *HALF.shape), dtype=np.float16), wrong)
    assert caught.value.field == "into"


@pytest.mark.parametrize(
    "shape", [(2, 4, 2, 2, 16, 4), (2, 1, 2, 2, 16, 8), (4, 2, 2, 16, 8), (2, 2048), ()]
)
def test_blocks_of_another_shape_are_refused_not_repeated(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        HALF.join(np.zeros(shape, dtype=np.float16))
    assert caught.value.field == "blocks"


def test_read_only_memory_is_refused() -> None:
    out = np.zeros(HALF.sequence_shape(1), dtype=np.float16)
    out.flags.writeable = False
    with pytest.raises(InvalidArgumentError) as caught:
        HALF.join(np.zeros((1, *HALF.shape), dtype=np.float16), out)
    assert (caught.value.field, caught.value.limit) == ("into", "writable")


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"layout": "opaque"}, "fingerprint.layout"), ({"cp_size": 2}, "fingerprint.cp_size")],
)
def test_blocks_without_a_shape_have_no_layout(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        BlockLayout.of(build(**changes))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"layers": 1025, "kv_heads": 1, "head_size": 1}, "fingerprint.layers"),
        ({"head_size": 2**20, "layers": 1}, "fingerprint.block_tokens"),
        ({"head_size": 2**32 - 1, "kv_heads": 2**32 - 1}, "fingerprint.block_tokens"),
    ],
)
def test_a_part_that_could_never_be_stored_is_refused(
    changes: dict[str, object], field: str
) -> None:
    with pytest.raises(TooLargeError) as caught:
        BlockLayout.of(build(**changes))
    assert caught.value.field == field
    assert caught.value.limit
