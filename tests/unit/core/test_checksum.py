"""CRC-32C: equal to RFC 3720, over every kind of buffer, and any flipped bit is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.checksum import crc32c, frame_checksums, frame_views, verify
from kvorum.core.errors import ChecksumError, InvalidArgumentError

RFC_3720 = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
    (
        bytes.fromhex(
            "01c00000000000000000000000000000140000000000040000000014000000182800000000000000"
            "0200000000000000"
        ),
        0xD9963A56,
    ),
]


@pytest.mark.parametrize(("data", "expected"), RFC_3720, ids=lambda v: f"{v!r}"[:16])
def test_the_vectors_of_rfc_3720(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert crc32c(bytearray(data)) == expected
    assert crc32c(memoryview(b"xx" + data)[2:]) == expected
    assert crc32c(np.frombuffer(data, dtype="<u4").data) == expected


def test_the_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_it_goes_on_from_where_it_was(one: bytes, two: bytes) -> None:
    assert crc32c(two, crc32c(one)) == crc32c(one + two)


@st.composite
def framed(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    frames = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
    return b"".join(frames), [len(frame) for frame in frames]


@given(framed())
def test_frames_cover_the_data_in_order_without_a_copy(case: tuple[bytes, list[int]]) -> None:
    data, sizes = case
    views = frame_views(memoryview(data), sizes)
    assert b"".join(views) == data
    assert [view.nbytes for view in views] == sizes
    assert all(view.obj is data for view in views if view.nbytes)
    verify(memoryview(data), sizes, frame_checksums(memoryview(data), sizes))


@given(framed(), st.data())
def test_any_flipped_bit_is_found_and_the_frame_named(
    case: tuple[bytes, list[int]], draw: st.DataObject
) -> None:
    data, sizes = case
    checksums = frame_checksums(memoryview(data), sizes)
    if not data:
        return
    at, bit = draw.draw(st.integers(0, len(data) - 1)), draw.draw(st.integers(0, 7))
    broken = bytearray(data)
    broken[at] ^= 1 << bit
    frame = next(i for i in range(len(sizes)) if at < sum(sizes[: i + 1]))
    with pytest.raises(ChecksumError, match=f"frame {frame} of {len(sizes)} ") as caught:
        verify(memoryview(broken), sizes, checksums)
    assert caught.value.field == "payload"


def test_frames_are_counted_in_bytes_whatever_the_elements() -> None:
    floats = np.arange(8, dtype="<f4").reshape(2, 4).data
    views = frame_views(floats, [12, 20])
    assert [view.nbytes for view in views] == [12, 20]
    assert b"".join(views) == floats.tobytes()
    assert frame_views(np.zeros((0, 4)).data, [0]) == [memoryview(b"")]


@pytest.mark.parametrize("sizes", [[], [3], [5], [2, 3], [4, 0, 1], [-1, 5]])
def test_frames_of_another_length_than_the_data_are_refused(sizes: list[int]) -> None:
    """A CRC-32C of nothing is 0: short data must not pass as frames that were announced so."""
    with pytest.raises(InvalidArgumentError) as caught:
        verify(memoryview(bytes(4)), sizes, [0] * len(sizes))
    assert caught.value.field == "frame_sizes"


@pytest.mark.parametrize("checksums", [[], [0], [0, 0, 0]])
def test_every_frame_has_a_checksum(checksums: list[int]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        verify(memoryview(bytes(4)), [2, 2], checksums)
    assert caught.value.field == "frame_crc32c"


def test_scattered_data_is_refused() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        frame_views(memoryview(bytes(8))[::2], [4])
    assert caught.value.field == "payload"
