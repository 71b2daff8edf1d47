"""Files under token lists: a share of the file in each full block of the list.

Lists that begin alike share blocks, so every share is checked against the record in front of it,
and the whole against its SHA-256.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import BinaryIO

from kvorum.cli import filechain
from kvorum.cli.chains import Chains, blocks_there, miss_error
from kvorum.cli.contents import check_content, check_unchanged, measure
from kvorum.cli.exits import ConflictError
from kvorum.cli.filechain import Record, TokenArray
from kvorum.cli.progress import Transfer
from kvorum.cli.stored import Stored
from kvorum.client import Client
from kvorum.core.errors import ChecksumError


class TokenStore:
    """Stores and reads files under token lists.

    Args:
        client: connected to a namespace with `filechain.FINGERPRINT`.
        timeout_s: seconds that each call may take.
        transfer: told how it goes.
    """

    def __init__(self, client: Client, timeout_s: float, transfer: Transfer) -> None:
        self._chains = Chains(client, timeout_s)
        self._transfer = transfer

    def put(self, tokens: TokenArray, file: io.BufferedIOBase) -> Stored:
        """Store a seekable file in the full blocks of a token list.

        Raises:
            ConflictError: a block of the list holds something else. Blocks of tokens never change.
            FileError: the file changed meanwhile.
            KvorumError: the cluster refused a block, or is not there.
        """
        count = filechain.full_blocks(tokens)
        record = measure(file, filechain.TOKEN_FILE_BYTES_MAX)
        content = file.read()
        check_unchanged(record, hashlib.sha256(content))
        blocks = filechain.shares(memoryview(content), record.sha256, count)
        outcome = Stored(record)
        self._check_prefix(tokens, blocks)
        outcome.add(self._chains.store(tokens, blocks, overwrite=False), count)
        if outcome.already_stored:
            self._check_prefix(tokens, blocks)
        self._transfer.advance(record.size)
        return outcome

    def _check_prefix(self, tokens: TokenArray, blocks: Sequence[bytes]) -> None:
        """Check that what the cache holds of the list is what would be stored."""
        hit = self._chains.find(tokens)
        if not hit:
            return
        for index, block in enumerate(self._chains.fetch(hit, len(hit.blocks))):
            if block != blocks[index]:
                raise ConflictError(
                    f"block {index} of the token list holds something else already",
                    field="--tokens",
                )

    def get(self, tokens: TokenArray, out: BinaryIO) -> tuple[Record, int]:
        """Write the file stored under a prefix of `tokens` to `out`.

        Returns:
            Its record, and how many tokens name it.

        Raises:
            NotFoundError: no file is there, or not all of it.
            ChecksumError: the blocks are not those of one file.
            KvorumError: the cluster is not there.
        """
        filechain.full_blocks(tokens)
        hit = self._chains.lookup(tokens, 1)
        blocks = self._chains.fetch(hit, len(hit.blocks))
        first, _ = Record.unpack(blocks[0])
        if not first.shares:
            raise ChecksumError("block 0 holds no share of a file", field="payload")
        if first.shares > len(blocks):
            raise miss_error(hit.reason, blocks_there(len(blocks), first.shares))
        digest = hashlib.sha256()
        for index, block in enumerate(blocks[: first.shares]):
            record, share = Record.unpack(block)
            if record != Record(first.sha256, first.size, index, first.shares):
                raise ChecksumError(f"block {index} belongs to another file", field="payload")
            digest.update(share)
            out.write(share)
            self._transfer.advance(share.nbytes)
        check_content(first, digest)
        return first, first.shares * filechain.BLOCK_TOKENS
