"""Block keys: a SHA3-512 chain over the fingerprint and the token ids.

    H0 = SHA3-512(canonical fingerprint || tenant salt)
    Hi = SHA3-512(H(i-1) || token ids of block i as little-endian uint32)

Hi names block i and, because each link hashes the one before, the whole prefix up to it. Equal
keys mean equal prefixes in every process. Hashing is over bytes alone, so neither Python's hash
seed nor the integer type of a token can matter. `docs/keys.md` specifies the bytes and
`tests/vectors/keys.json` holds examples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.names import check_name

SECRET_BYTES: Final = 32
SALT_BYTES: Final = 32
_KINDS: Final = "a sequence, array or tensor of integers in the host's memory"
_SALT_MAGIC: Final = b"kvorum.tenant-salt.v1\0"


@runtime_checkable
class SupportsNumpy(Protocol):
    """A tensor that can show itself as a NumPy array: `torch.Tensor` is one."""

    def __array__(self, dtype: None = ...) -> npt.NDArray[np.generic]: ...


Tokens: TypeAlias = "Sequence[int] | npt.NDArray[np.integer] | SupportsNumpy"
"""Token ids of one prompt: a sequence of integers, an integer array, or an integer tensor."""


def token_array(tokens: Tokens) -> npt.NDArray[np.uint32]:
    """Return `tokens` as a one-dimensional array of little-endian uint32.

    Raises:
        InvalidArgumentError: empty, not one-dimensional, not integers, or an id out of range.
        TooLargeError: more than `limits.PROMPT_TOKENS_MAX` tokens.
    """
    array = _as_array(tokens)
    if array.ndim != 1:
        raise InvalidArgumentError(
            f"tokens has {array.ndim} dimensions", field="tokens", limit="1 dimension"
        )
    _check_count(array.size)
    if array.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"tokens has elements of type {array.dtype}", field="tokens", limit="integers"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > limits.TOKEN_ID_MAX:
        raise InvalidArgumentError(
            f"tokens holds the id {low if low < 0 else high}",
            field="tokens",
            limit=f"0 to {limits.TOKEN_ID_MAX}",
        )
    return np.ascontiguousarray(array, dtype="<u4")


def _check_count(count: int) -> None:
    if count == 0:
        raise InvalidArgumentError("tokens is empty", field="tokens", limit="at least 1 token")
    if count > limits.PROMPT_TOKENS_MAX:
        raise TooLargeError(
            f"tokens has {count} ids",
            field="tokens",
            limit=f"{limits.PROMPT_TOKENS_MAX} tokens",
        )


def _as_array(tokens: Tokens) -> npt.NDArray[np.generic]:
    if isinstance(tokens, np.ma.MaskedArray):
        # min() and max() would pass over the ids under the mask, and hashing would not.
        raise InvalidArgumentError("tokens is masked", field="tokens", limit=_KINDS)
    if isinstance(tokens, np.ndarray):
        return tokens
    if isinstance(tokens, str | bytes | bytearray | memoryview):
        raise InvalidArgumentError(
            f"tokens is a {type(tokens).__name__}", field="tokens", limit=_KINDS
        )
    if isinstance(tokens, Sequence):
        return _from_sequence(tokens)
    if isinstance(tokens, SupportsNumpy):
        try:
            return np.asarray(tokens)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidArgumentError(
                f"tokens cannot be read as an array: {error}", field="tokens", limit=_KINDS
            ) from error
    raise InvalidArgumentError(f"tokens is a {type(tokens).__name__}", field="tokens", limit=_KINDS)


def _from_sequence(tokens: Sequence[int]) -> npt.NDArray[np.generic]:
    try:
        count = len(tokens)
    except OverflowError:  # range(2**70)
        raise TooLargeError(
            "tokens has more ids than can be counted",
            field="tokens",
            limit=f"{limits.PROMPT_TOKENS_MAX} tokens",
        ) from None
    _check_count(count)
    # NumPy would turn [1, 2.5] into floats and [True] into numbers: look at each element.
    if not all(isinstance(t, int | np.integer) and not isinstance(t, bool) for t in tokens):
        raise InvalidArgumentError(
            "tokens holds an element that is not an integer", field="tokens", limit="integers"
        )
    try:
        return np.asarray(tokens, dtype=np.int64)
    except OverflowError:
        raise InvalidArgumentError(
            "tokens holds an id that is out of range",
            field="tokens",
            limit=f"0 to {limits.TOKEN_ID_MAX}",
        ) from None


def tenant_salt(cluster_secret: bytes, tenant: str) -> bytes:
    """Return the 32 bytes that keep one tenant's keys apart from another's.

    Raises:
        InvalidArgumentError: the secret is not 32 bytes, or `tenant` is no name.
    """
    _check_bytes(cluster_secret, "cluster_secret", SECRET_BYTES)
    name = check_name(tenant, "tenant").encode()
    return hashlib.sha3_256(_SALT_MAGIC + cluster_secret + b"\0" + name).digest()


def slot_of(segment_key: bytes) -> int:
    """Return the slot, 0 to 16,383, of the segment whose first block has this key."""
    return segment_key[0] << 6 | segment_key[1] >> 2


@dataclass(frozen=True, slots=True)
class Chain:
    """The keys of a prompt's full blocks.

    Attributes:
        root: H0, 64 bytes.
        keys: H1 to Hn, one for each full block; the last, partial block has no key.
        block_tokens: tokens a block.
        tokens: tokens of the prompt, the partial block included.
    """

    root: bytes
    keys: tuple[bytes, ...]
    block_tokens: int
    tokens: int

    @property
    def blocks_per_segment(self) -> int:
        """Blocks that share one slot."""
        return blocks_per_segment(self.block_tokens)

    @property
    def prompt_id(self) -> bytes:
        """The chain value after the last block that ends within the first 1,024 tokens.

        A prompt with one block that is longer than that takes its first block; one with no full
        block takes H0.
        """
        blocks = min(max(limits.PROMPT_ID_TOKENS // self.block_tokens, 1), len(self.keys))
        return self.keys[blocks - 1] if blocks else self.root

    def parent(self, index: int) -> bytes:
        """Return the key before block `index`; H0 for the first."""
        return self.keys[index - 1] if index else self.root

    def slot(self, index: int) -> int:
        """Return the slot of block `index`: that of its segment's first block."""
        return slot_of(self.keys[index - index % self.blocks_per_segment])

    def slots(self) -> list[int]:
        """Return the slot of every block, in order."""
        return [self.slot(index) for index in range(len(self.keys))]


def blocks_per_segment(block_tokens: int) -> int:
    """Return how many blocks of this size a segment of at most 2,048 tokens holds."""
    return limits.SEGMENT_TOKENS // block_tokens


def root_key(fingerprint: Fingerprint, salt: bytes) -> bytes:
    """Return H0.

    Raises:
        InvalidArgumentError: the salt is not 32 bytes.
    """
    _check_bytes(salt, "salt", SALT_BYTES)
    return hashlib.sha3_512(fingerprint.canonical() + salt).digest()


def _check_bytes(value: object, field: str, size: int) -> None:
    """Check a secret; the message does not show it."""
    if not isinstance(value, bytes) or len(value) != size:
        raise InvalidArgumentError(
            f"{field} is of another type or length", field=field, limit=f"{size} bytes"
        )


def chain(fingerprint: Fingerprint, salt: bytes, tokens: Tokens) -> Chain:
    """Return the keys of every full block of `tokens`.

    Raises:
        InvalidArgumentError: see `token_array` and `root_key`.
    """
    root = root_key(fingerprint, salt)
    array = token_array(tokens)
    size = fingerprint.block_tokens
    full = array[: array.size - array.size % size].reshape(-1, size)
    return Chain(root, tuple(_links(root, full)), size, array.size)


def _links(root: bytes, blocks: npt.NDArray[np.uint32]) -> Iterable[bytes]:
    link = root
    for block in blocks:
        link = hashlib.sha3_512(link + block.tobytes()).digest()
        yield link
