"""How a file lies in the cache: which token chains name its blocks, and what the blocks hold.

Pure. Three chains, all of blocks of 16 tokens in a namespace of the layout `opaque`:

- A *name* is hashed to 16 tokens, one block. That block is a record: size and SHA-256 of the file,
  followed by the file itself if it is small.
- A larger file is cut into *extents* of 64 MiB, each a chain of its own of 16 blocks of 4 MiB.
  The first 16 tokens are a hash of the file's SHA-256 and the extent's number, so an extent can
  hold nothing but these bytes, and a name that is stored anew changes all at once.
- A *token list* of the caller is a chain as it is. Its n full blocks hold one nth of the file each,
  every one behind a record, so that shares of different files are told apart.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from kvorum.core import limits
from kvorum.core.errors import ChecksumError, InvalidArgumentError, TooLargeError
from kvorum.core.fingerprint import Fingerprint

BLOCK_TOKENS: Final = 16
BLOCK_BYTES: Final = 4 << 20
EXTENT_BLOCKS: Final = 16
EXTENT_BYTES: Final = EXTENT_BLOCKS * BLOCK_BYTES
FILE_BYTES_MAX: Final = 1 << 40
TOKEN_FILE_BYTES_MAX: Final = 256 << 20
NAME_BYTES_MAX: Final = 4_096

_RECORD: Final = struct.Struct("<4sIIQ32s12x")
_MAGIC: Final = b"KVF1"
INLINE_BYTES_MAX: Final = BLOCK_BYTES - _RECORD.size

FINGERPRINT: Final = Fingerprint(
    model="kvorum/file",
    weights_revision="1",
    tokenizer="kvorum/file-address-1",
    adapter="none",
    kv_dtype="uint8",
    layout="opaque",
    layers=1,
    kv_heads=1,
    head_size=1,
    rope="none",
    tp_size=1,
    pp_size=1,
    cp_size=1,
    block_tokens=BLOCK_TOKENS,
    codec_class="lossless",
)
"""What "made" the blocks of files: this format."""

TokenArray = npt.NDArray[np.uint32]


def name_tokens(name: str) -> TokenArray:
    """Return the 16 tokens of a name: one block.

    Raises:
        InvalidArgumentError: it is empty or not valid text.
        TooLargeError: it has more than 4,096 bytes of UTF-8.
    """
    try:
        text = name.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError("the name is not UTF-8", field="name") from None
    if not text:
        raise InvalidArgumentError("the name is empty", field="name", limit="at least 1 byte")
    if len(text) > NAME_BYTES_MAX:
        raise TooLargeError(
            f"the name has {len(text)} bytes", field="name", limit=f"{NAME_BYTES_MAX} bytes"
        )
    return _address(b"name", text)


def extent_tokens(sha256: bytes, extent: int, size: int) -> TokenArray:
    """Return the tokens of one extent, of `size` bytes, of the file `sha256`."""
    head = _address(b"extent", sha256 + struct.pack("<Q", extent))
    rest = np.repeat(np.arange(1, -(-size // BLOCK_BYTES), dtype=np.uint32), BLOCK_TOKENS)
    return np.concatenate((head, rest))


def _address(kind: bytes, value: bytes) -> TokenArray:
    digest = hashlib.sha3_512(b"kvorum.file-address.v1\0" + kind + b"\0" + value).digest()
    return np.frombuffer(digest, dtype="<u4").astype(np.uint32)


def extent_sizes(size: int) -> list[int]:
    """Return the bytes of every extent of a file of `size` bytes."""
    whole, rest = divmod(size, EXTENT_BYTES)
    return [EXTENT_BYTES] * whole + ([rest] if rest else [])


def check_file_size(size: int, limit: int = FILE_BYTES_MAX) -> None:
    """Check a file's size.

    Raises:
        TooLargeError: more than `limit` bytes.
    """
    if size > limit:
        raise TooLargeError(f"the file has {size} bytes", field="FILE", limit=f"{limit} bytes")


def cut(data: memoryview, size: int) -> list[memoryview]:
    """Cut `data` into runs of `size` bytes; the last may be shorter."""
    return [data[start : start + size] for start in range(0, data.nbytes, size)]


@dataclass(frozen=True, slots=True)
class Record:
    """What a block says about the file it belongs to.

    Attributes:
        sha256: of the whole file, 32 bytes.
        size: bytes of the whole file.
        index: which share of the file follows, from 0.
        shares: shares that the file was cut into; 0 if the file lies in extents.
    """

    sha256: bytes
    size: int
    index: int = 0
    shares: int = 0

    def pack(self, share: memoryview | bytes = b"") -> bytes:
        """Return the bytes of a block: this record and the share."""
        head = _RECORD.pack(_MAGIC, self.index, self.shares, self.size, self.sha256)
        return b"".join((head, share))

    @classmethod
    def unpack(cls, block: memoryview) -> tuple[Self, memoryview]:
        """Return the record in front of `block`, and the share behind it.

        Raises:
            ChecksumError: the block was not written by this format.
        """
        if block.nbytes < _RECORD.size or bytes(block[: len(_MAGIC)]) != _MAGIC:
            raise ChecksumError("the block holds no file record", field="payload")
        _, index, shares, size, sha256 = _RECORD.unpack(block[: _RECORD.size])
        return cls(sha256, size, index, shares), block[_RECORD.size :]

    def same_file(self, other: Record) -> bool:
        """Whether both are about one file."""
        return (self.sha256, self.size) == (other.sha256, other.size)


def full_blocks(tokens: TokenArray) -> int:
    """Return how many full blocks a caller's token list has.

    Raises:
        InvalidArgumentError: not one.
        TooLargeError: more than one lookup can ask for.
    """
    blocks = tokens.size // BLOCK_TOKENS
    if blocks > limits.LOOKUP_BLOCKS_MAX:
        raise TooLargeError(
            f"the list has {tokens.size} tokens",
            field="tokens",
            limit=f"{(limits.LOOKUP_BLOCKS_MAX + 1) * BLOCK_TOKENS - 1} tokens",
        )
    if not blocks:
        raise InvalidArgumentError(
            f"the list has {tokens.size} tokens", field="tokens", limit=f"at least {BLOCK_TOKENS}"
        )
    return int(blocks)


def shares(data: memoryview, sha256: bytes, count: int) -> list[bytes]:
    """Cut a file into `count` blocks of nearly equal size, each behind a record.

    Raises:
        TooLargeError: a block would be over the limit of a part.
    """
    longest = -(-data.nbytes // count)
    if longest + _RECORD.size > limits.PART_BYTES_MAX:
        raise TooLargeError(
            f"{data.nbytes} bytes in {count} blocks",
            field="FILE",
            limit=f"{limits.PART_BYTES_MAX - _RECORD.size} bytes for each {BLOCK_TOKENS} tokens",
        )
    return [
        Record(sha256, data.nbytes, index, count).pack(
            data[min(index * longest, data.nbytes) : (index + 1) * longest]
        )
        for index in range(count)
    ]
