"""pack: messages of at most 1 MiB that say exactly which bytes they carry."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.client.packing import pack
from kvorum.core import limits

MIB = limits.FRAME_BYTES
DATA = np.random.default_rng(0).bytes(2 * MIB)
ITEMS = st.lists(st.lists(st.integers(0, 2 * MIB // 3), max_size=4), max_size=6)


@settings(max_examples=20)
@given(ITEMS)
def test_the_chunks_say_what_the_payload_holds(sizes: list[list[int]]) -> None:
    items = [[memoryview(DATA)[at : at + size] for at, size in enumerate(item)] for item in sizes]
    got = [bytearray() for _ in items]
    frames = list(pack(items))
    for frame in frames:
        joined = b"".join(frame.pieces)
        assert 0 < len(joined) <= MIB
        at = 0
        for chunk in frame.head.chunks:
            assert chunk.offset == len(got[chunk.item]), "in order and without a gap"
            got[chunk.item] += joined[at : at + chunk.length]
            at += chunk.length
        assert at == len(joined)
    assert [bytes(item) for item in got] == [b"".join(item) for item in items]
    assert all(sum(p.nbytes for p in frame.pieces) == MIB for frame in frames[:-1])


def test_small_blocks_share_a_message() -> None:
    items = [[memoryview(bytes(1000))] for _ in range(100)]
    frames = list(pack(items))
    assert len(frames) == 1
    assert [chunk.item for chunk in frames[0].head.chunks] == list(range(100))


def test_no_byte_is_copied() -> None:
    buffer = bytearray(10)
    (frame,) = pack([[memoryview(buffer)]])
    buffer[3] = 7
    assert frame.pieces[0][3] == 7
