"""Writing: bytes land in order, frame by frame, and only the right ones are complete."""

from __future__ import annotations

import random

import pytest

from kvorum.core.checksum import frame_checksums
from kvorum.core.errors import ChecksumError, InvalidArgumentError, TooLargeError
from kvorum.node.service.writing import Writing

DATA = random.Random(5).randbytes(1_000)
SIZES = (300, 1, 699)
CHECKSUMS = frame_checksums(memoryview(DATA), SIZES)


def made() -> tuple[Writing, bytearray]:
    place = bytearray(len(DATA))
    return Writing(memoryview(place), SIZES, CHECKSUMS), place


@pytest.mark.parametrize("chunk", [1, 7, 299, 300, 301, 1_000])
def test_bytes_arrive_in_chunks_that_know_nothing_of_frames(chunk: int) -> None:
    writing, place = made()
    for offset in range(0, len(DATA), chunk):
        assert not writing.complete
        writing.take(offset, memoryview(DATA)[offset : offset + chunk])
    assert writing.complete
    assert place == DATA


@pytest.mark.parametrize("offset", [0, 99, 101, 500])
def test_a_gap_and_a_repetition_are_refused(offset: int) -> None:
    writing, place = made()
    writing.take(0, memoryview(DATA)[:100])
    with pytest.raises(InvalidArgumentError) as caught:
        writing.take(offset, memoryview(DATA)[100:200])
    assert caught.value.field == "chunks.offset"
    assert place[100:] == bytes(900)


def test_more_than_was_announced_is_refused() -> None:
    writing, _ = made()
    with pytest.raises(TooLargeError):
        writing.take(0, memoryview(DATA + b"x"))


@pytest.mark.parametrize(("byte", "frame"), [(0, 0), (299, 0), (300, 1), (301, 2), (999, 2)])
def test_one_flipped_bit_is_found_at_the_end_of_its_frame(byte: int, frame: int) -> None:
    writing, _ = made()
    wrong = bytearray(DATA)
    wrong[byte] ^= 1
    end = sum(SIZES[: frame + 1])
    writing.take(0, memoryview(wrong)[: end - 1])
    with pytest.raises(ChecksumError, match=f"frame {frame} of 3"):
        writing.take(end - 1, memoryview(wrong)[end - 1 : end])
