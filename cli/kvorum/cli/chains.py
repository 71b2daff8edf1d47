"""Chains of blocks through one client: whole answers, or the error that says what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.cli import filechain
from kvorum.cli.exits import NotFoundError
from kvorum.cli.filechain import TokenArray
from kvorum.cli.sizes import format_count
from kvorum.client import Client, Hit, MissReason, StoreResult
from kvorum.core.errors import (
    ChecksumError,
    DeadlineError,
    PermissionDeniedError,
    UnavailableError,
)


class Chains:
    """Stores, looks up and fetches chains of a namespace of files.

    Args:
        client: connected to a namespace with `filechain.FINGERPRINT`.
        timeout_s: seconds that each call may take.
    """

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    def store(
        self, tokens: TokenArray, blocks: Sequence[bytes] | Sequence[memoryview], *, overwrite: bool
    ) -> StoreResult:
        """Store every block of `tokens`; the result says what became of each."""
        return self._client.store(tokens, blocks, overwrite=overwrite, deadline_s=self._timeout_s)

    def find(self, tokens: TokenArray) -> Hit:
        """Return the prefix of `tokens` that is there, which may be none."""
        return self._client.lookup(tokens, budget_s=self._timeout_s)

    def lookup(self, tokens: TokenArray, count: int) -> Hit:
        """Return a hit of at least `count` blocks.

        Raises:
            NotFoundError: fewer are there.
            KvorumError: the cluster could not be asked.
        """
        hit = self.find(tokens)
        if len(hit.blocks) < count:
            raise miss_error(hit.reason, blocks_there(len(hit.blocks), count))
        return hit

    def fetch(self, hit: Hit, count: int) -> list[memoryview]:
        """Return the blocks of a hit, at least `count` of them.

        Raises:
            NotFoundError: fewer arrived intact.
            KvorumError: the cluster could not be asked.
        """
        fetched = self._client.fetch(hit, deadline_s=self._timeout_s)
        if len(fetched.blocks) < count:
            raise miss_error(
                fetched.reason, f"{len(fetched.blocks)} of {format_count(count, 'block')} arrived"
            )
        return list(fetched.blocks)

    def fetch_into(self, tokens: TokenArray, into: memoryview) -> None:
        """Fetch every block of `tokens` into one buffer that they fill exactly.

        Raises:
            NotFoundError: a block is missing.
            ChecksumError: the blocks are of another size.
            KvorumError: the cluster could not be asked.
        """
        count = filechain.full_blocks(tokens)
        hit = self.lookup(tokens, count)
        size = sum(block.size_bytes for block in hit.blocks)
        if size != into.nbytes:
            raise ChecksumError(
                f"the blocks have {size} bytes", field="payload", limit=f"{into.nbytes} bytes"
            )
        fetched = self._client.fetch(hit, into=into, deadline_s=self._timeout_s)
        if len(fetched.blocks) < count:
            raise miss_error(
                fetched.reason, f"{len(fetched.blocks)} of {format_count(count, 'block')} arrived"
            )


def blocks_there(found: int, wanted: int) -> str:
    """Say how many of the blocks that were looked for are there."""
    return f"{found} of {format_count(wanted, 'block')} {'is' if wanted == 1 else 'are'} there"


def miss_error(reason: MissReason | None, what: str) -> Exception:
    """Return the error for blocks that are not there, by the reason why."""
    match reason:
        case MissReason.NODE_DOWN:
            return UnavailableError(f"{what}: no node that should hold the next could be reached")
        case MissReason.TIMEOUT:
            return DeadlineError(f"{what}: the next did not come in time", field="--timeout")
        case MissReason.DENIED:
            return PermissionDeniedError(f"{what}: the credentials do not open the namespace")
        case _:
            return NotFoundError(what, reason=reason.name if reason is not None else "")
