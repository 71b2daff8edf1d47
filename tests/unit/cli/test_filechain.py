"""Goal: a file's blocks are named by its name or content alone, and shares put together are it."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.cli import filechain
from kvorum.cli.filechain import BLOCK_TOKENS, Record
from kvorum.core import limits
from kvorum.core.errors import ChecksumError, InvalidArgumentError, TooLargeError


def test_a_name_is_one_block_for_ever() -> None:
    tokens = filechain.name_tokens("readme")
    digest = hashlib.sha3_512(b"kvorum.file-address.v1\0name\0readme").digest()
    assert tokens.tolist() == list(struct.unpack("<16I", digest))
    assert tokens.size == BLOCK_TOKENS


def test_names_of_any_length_have_an_address_of_their_own() -> None:
    names = ["a", "a" * 4_096, "a" * 4_095, "ä" * 2_048]
    assert len({filechain.name_tokens(name).tobytes() for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "error"),
    [("", InvalidArgumentError), ("a" * 4_097, TooLargeError), ("\udc80", InvalidArgumentError)],
)
def test_unusable_names_are_refused(name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="name"):
        filechain.name_tokens(name)


def test_extents_differ_by_file_and_number_and_share_no_block() -> None:
    one, other = b"1" * 32, b"2" * 32
    heads = {
        filechain.extent_tokens(sha, extent, 1)[:BLOCK_TOKENS].tobytes()
        for sha in (one, other)
        for extent in range(3)
    }
    assert len(heads) == 6


def test_an_extent_has_a_block_for_every_started_4_mib() -> None:
    for size, blocks in ((1, 1), (4 << 20, 1), ((4 << 20) + 1, 2), (64 << 20, 16)):
        tokens = filechain.extent_tokens(b"x" * 32, 0, size)
        assert filechain.full_blocks(tokens) == blocks
        assert tokens.size == blocks * BLOCK_TOKENS


@given(size=st.integers(0, 1 << 40))
def test_extents_cover_the_file(size: int) -> None:
    sizes = filechain.extent_sizes(min(size, 1 << 33))
    assert sum(sizes) == min(size, 1 << 33)
    assert all(0 < extent <= filechain.EXTENT_BYTES for extent in sizes)


@given(content=st.binary(max_size=300), count=st.integers(1, 20))
def test_shares_put_together_are_the_file(content: bytes, count: int) -> None:
    sha256 = hashlib.sha256(content).digest()
    blocks = filechain.shares(memoryview(content), sha256, count)
    assert len(blocks) == count
    joined = b""
    for index, block in enumerate(blocks):
        record, share = Record.unpack(memoryview(block))
        assert record == Record(sha256, len(content), index, count)
        joined += share
    assert joined == content


def test_a_share_over_the_limit_of_a_part_is_refused() -> None:
    content = memoryview(bytes(limits.PART_BYTES_MAX))
    with pytest.raises(TooLargeError) as caught:
        filechain.shares(content, b"x" * 32, 1)
    assert caught.value.field == "FILE"


@pytest.mark.parametrize("block", [b"", b"KVF1", b"x" * 64, b"KVF2" + bytes(60)])
def test_foreign_blocks_are_no_records(block: bytes) -> None:
    with pytest.raises(ChecksumError):
        Record.unpack(memoryview(block))


def test_token_lists_need_a_full_block_and_have_a_limit() -> None:
    assert filechain.full_blocks(np.zeros(17, dtype=np.uint32)) == 1
    with pytest.raises(InvalidArgumentError) as few:
        filechain.full_blocks(np.zeros(15, dtype=np.uint32))
    assert few.value.limit == "at least 16"
    with pytest.raises(TooLargeError):
        filechain.full_blocks(np.zeros((limits.LOOKUP_BLOCKS_MAX + 1) * 16, dtype=np.uint32))
