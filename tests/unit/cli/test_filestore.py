"""Goal: a file is read whole or not at all, whatever the cache holds.

Method: a dictionary in place of the cluster, so that a test can damage what lies in it.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from kvorum.cli import filechain
from kvorum.cli.chains import miss_error
from kvorum.cli.exits import ConflictError, FileError, NotFoundError
from kvorum.cli.filechain import BLOCK_TOKENS, Record, TokenArray
from kvorum.cli.filestore import FileStore
from kvorum.cli.progress import Transfer
from kvorum.cli.tokenstore import TokenStore
from kvorum.client import Client, MissReason
from kvorum.core.errors import (
    ArenaFullError,
    ChecksumError,
    DeadlineError,
    PermissionDeniedError,
    UnavailableError,
)

BLOCK_BYTES = 1_024
EXTENT_BYTES = filechain.EXTENT_BLOCKS * BLOCK_BYTES
INLINE_BYTES_MAX = 1_000
LARGE = EXTENT_BYTES + 5
TOKENS = np.arange(3 * BLOCK_TOKENS, dtype=np.uint32)


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOCK_BYTES", "EXTENT_BYTES", "INLINE_BYTES_MAX"):
        monkeypatch.setattr(filechain, name, globals()[name])


class Blocks:
    """What the client does, on a dictionary of prefixes; `room` bounds the blocks that stay."""

    def __init__(self, room: int = 1_000) -> None:
        self.held: dict[bytes, bytes] = {}
        self.room = room

    def _keys(self, tokens: TokenArray) -> list[bytes]:
        ends = range(BLOCK_TOKENS, tokens.size + 1, BLOCK_TOKENS)
        return [tokens[:end].tobytes() for end in ends]

    def lookup(self, tokens: TokenArray, **_: float) -> Any:
        found: list[Any] = []
        for index, key in enumerate(self._keys(tokens)):
            if key not in self.held:
                return SimpleNamespace(blocks=found, reason=MissReason.EVICTED)
            size = len(self.held[key])
            found.append(SimpleNamespace(index=index, size_bytes=size, key=key))
        return SimpleNamespace(blocks=found, reason=None) if found else Missed()

    def fetch(self, hit: Any, into: memoryview | None = None, **_: float) -> Any:
        blocks = [memoryview(self.held[block.key]) for block in hit.blocks]
        if into is not None:
            into[:] = b"".join(blocks)
        return SimpleNamespace(blocks=blocks, reason=None)

    def store(
        self, tokens: TokenArray, kv: Sequence[bytes], *, overwrite: bool = False, **_: float
    ) -> Any:
        stored = 0
        for key, block in zip(self._keys(tokens), kv, strict=True):
            if overwrite or key not in self.held:
                self.held[key] = bytes(block)
                stored += 1
        while len(self.held) > self.room:
            del self.held[next(iter(self.held))]
        already = len(kv) - stored
        return SimpleNamespace(errors=[], stored=stored, already_stored=already, zones=("a",))


@dataclass
class Missed:
    """A hit of nothing."""

    blocks: tuple[()] = ()
    reason: MissReason = MissReason.NEVER_STORED

    def __bool__(self) -> bool:
        return False


def store_of(blocks: Blocks) -> FileStore:
    return FileStore(cast("Client", blocks), 1.0, Transfer("test"))


def tokens_of(blocks: Blocks) -> TokenStore:
    return TokenStore(cast("Client", blocks), 1.0, Transfer("test"))


def content_of(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def get(blocks: Blocks, name: str) -> bytes:
    out = io.BytesIO()
    store_of(blocks).get(name, out)
    return out.getvalue()


@pytest.mark.parametrize("size", [0, 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, LARGE])
def test_a_file_comes_back(size: int) -> None:
    blocks, content = Blocks(), content_of(size)
    outcome = store_of(blocks).put("n", io.BytesIO(content), overwrite=False)
    assert outcome.stored == outcome.blocks == len(blocks.held)
    assert get(blocks, "n") == content


@pytest.mark.parametrize("size", [100, LARGE])
def test_other_bytes_than_those_stored_are_not_handed_out(size: int) -> None:
    blocks = Blocks()
    store_of(blocks).put("n", io.BytesIO(content_of(size)), overwrite=False)
    key = next(iter(blocks.held))
    blocks.held[key] = blocks.held[key][:-1] + bytes([blocks.held[key][-1] ^ 1])
    with pytest.raises(ChecksumError):
        get(blocks, "n")


def test_a_block_of_another_size_is_not_taken() -> None:
    blocks = Blocks()
    store_of(blocks).put("n", io.BytesIO(content_of(LARGE)), overwrite=False)
    key = next(iter(blocks.held))
    blocks.held[key] += b"x"
    with pytest.raises(ChecksumError, match="bytes"):
        get(blocks, "n")


@pytest.mark.parametrize(
    "block",
    [
        b"junk",
        Record(b"s" * 32, 5, 0, 1).pack(b"four"),
        Record(b"s" * 32, 5, 1, 1).pack(b"12345"),
        Record(b"s" * 32, 5, 0, 0).pack(b"12345"),
    ],
)
def test_what_is_no_record_of_a_name_is_refused(block: bytes) -> None:
    blocks = Blocks()
    blocks.store(filechain.name_tokens("n"), [block])
    with pytest.raises(ChecksumError, match=r"no.*record"):
        get(blocks, "n")


def test_a_lost_block_is_a_miss_with_its_reason() -> None:
    blocks = Blocks()
    store_of(blocks).put("n", io.BytesIO(content_of(LARGE)), overwrite=False)
    del blocks.held[list(blocks.held)[3]]
    with pytest.raises(NotFoundError, match="3 of 16 blocks are there") as caught:
        get(blocks, "n")
    assert caught.value.reason == "EVICTED"


def test_overwrite_replaces_and_its_absence_refuses() -> None:
    blocks, old, new = Blocks(), content_of(10, 1), content_of(LARGE, 2)
    put = store_of(blocks).put
    put("n", io.BytesIO(old), overwrite=False)
    with pytest.raises(ConflictError, match="of 10 bytes"):
        put("n", io.BytesIO(new), overwrite=False)
    assert get(blocks, "n") == old
    put("n", io.BytesIO(new), overwrite=True)
    assert get(blocks, "n") == new
    again = put("n", io.BytesIO(new), overwrite=False)
    assert (again.stored, again.already_stored) == (0, again.blocks)


def test_a_file_that_pushes_itself_out_is_not_stored() -> None:
    blocks = Blocks(room=5)
    with pytest.raises(ArenaFullError, match="of 17 blocks were kept"):
        store_of(blocks).put("n", io.BytesIO(content_of(LARGE)), overwrite=False)
    with pytest.raises(NotFoundError):
        get(blocks, "n")


class Changing(io.BytesIO):
    """A file that is another one when it is read again."""

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset == 0 and whence == io.SEEK_SET and self.tell() == len(self.getvalue()):
            self.getbuffer()[-1] ^= 1
        return super().seek(offset, whence)


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_file_that_changes_meanwhile_is_refused(size: int) -> None:
    blocks = Blocks()
    with pytest.raises(FileError, match="changed"):
        store_of(blocks).put("n", Changing(content_of(size)), overwrite=False)
    assert filechain.name_tokens("n").tobytes() not in blocks.held


def test_shares_of_two_files_never_mix() -> None:
    blocks = Blocks()
    one, other = content_of(100, 1), content_of(100, 2)
    tokens_of(blocks).put(TOKENS, io.BytesIO(one))
    shares = filechain.shares(memoryview(other), hashlib.sha256(other).digest(), 3)
    blocks.held[TOKENS.tobytes()] = shares[2]
    with pytest.raises(ChecksumError, match="block 2 belongs to another file"):
        tokens_of(blocks).get(TOKENS, io.BytesIO())
    with pytest.raises(ConflictError, match="block 2"):
        tokens_of(blocks).put(TOKENS, io.BytesIO(one))


def test_part_of_a_file_is_a_miss() -> None:
    blocks = Blocks()
    tokens_of(blocks).put(TOKENS, io.BytesIO(b"content"))
    del blocks.held[TOKENS.tobytes()]
    with pytest.raises(NotFoundError, match="2 of 3 blocks are there"):
        tokens_of(blocks).get(TOKENS, io.BytesIO())


def test_a_longer_list_finds_the_file_of_its_prefix() -> None:
    blocks, out = Blocks(), io.BytesIO()
    tokens_of(blocks).put(TOKENS[:32], io.BytesIO(b"content"))
    record, found = tokens_of(blocks).get(TOKENS, out)
    assert (out.getvalue(), record.size, found) == (b"content", 7, 32)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (MissReason.NODE_DOWN, UnavailableError),
        (MissReason.TIMEOUT, DeadlineError),
        (MissReason.DENIED, PermissionDeniedError),
        (MissReason.EVICTED, NotFoundError),
        (None, NotFoundError),
    ],
)
def test_the_reason_decides_the_error(reason: MissReason | None, error: type[Exception]) -> None:
    assert type(miss_error(reason, "what")) is error
