"""Files under names: stores and reads them in the form of `kvorum.cli.filechain`.

A file is read whole or not at all: its blocks are checked against their record and the whole
against its SHA-256, over and above the checksums of the client.
"""

from __future__ import annotations

import hashlib
import io
from typing import BinaryIO

from kvorum.cli import filechain
from kvorum.cli.chains import Chains
from kvorum.cli.contents import changed, check_content, check_unchanged, measure, read_into
from kvorum.cli.exits import ConflictError, NotFoundError
from kvorum.cli.filechain import Record, TokenArray
from kvorum.cli.progress import Transfer
from kvorum.cli.stored import Stored
from kvorum.client import Client
from kvorum.core.errors import ArenaFullError, ChecksumError


class FileStore:
    """Stores and reads files under names.

    Args:
        client: connected to a namespace with `filechain.FINGERPRINT`.
        timeout_s: seconds that each call may take; a large file takes one for every 64 MiB.
        transfer: told how it goes.
    """

    def __init__(self, client: Client, timeout_s: float, transfer: Transfer) -> None:
        self._chains = Chains(client, timeout_s)
        self._transfer = transfer

    def put(self, name: str, file: io.BufferedIOBase, *, overwrite: bool) -> Stored:
        """Store a seekable file under a name; a reader sees the old file or all of the new one.

        Raises:
            ConflictError: the name holds another file, and `overwrite` is False.
            FileError: the file changed meanwhile.
            ArenaFullError: the cluster did not keep all of it.
            KvorumError: the cluster refused a block, or is not there.
        """
        tokens = filechain.name_tokens(name)
        record = measure(file, filechain.FILE_BYTES_MAX)
        outcome = Stored(record)
        if not overwrite:
            self._check_free(name, tokens, record)
        self._transfer.begin(record.size)
        if record.size <= filechain.INLINE_BYTES_MAX:
            record = Record(record.sha256, record.size, 0, 1)
            content = file.read()
            check_unchanged(record, hashlib.sha256(content))
            block = record.pack(content)
        else:
            self._put_extents(record, file, outcome)
            block = record.pack()
        result = self._chains.store(tokens, [block], overwrite=overwrite)
        outcome.add(result, 1)
        if result.already_stored and not overwrite:
            self._check_free(name, tokens, record)
        self._transfer.advance(record.size if record.shares else 0)
        return outcome

    def _check_free(self, name: str, tokens: TokenArray, record: Record) -> None:
        """Check that a name holds nothing or the same file, as far as the replicas know by now.

        Raises:
            ConflictError: it holds another file.
        """
        try:
            held, _ = self.read_record(tokens)
        except NotFoundError:
            return
        if not held.same_file(record):
            raise ConflictError(
                f"{name!r} holds another file, of {held.size} bytes; --overwrite replaces it",
                field="--name",
            )

    def _put_extents(self, record: Record, file: io.BufferedIOBase, outcome: Stored) -> None:
        buffer = memoryview(bytearray(filechain.EXTENT_BYTES))
        digest = hashlib.sha256()
        for extent, size in enumerate(filechain.extent_sizes(record.size)):
            data = buffer[:size]
            if read_into(file, data) != size:
                raise changed()
            digest.update(data)
            blocks = filechain.cut(data, filechain.BLOCK_BYTES)
            tokens = filechain.extent_tokens(record.sha256, extent, size)
            outcome.add(self._chains.store(tokens, blocks, overwrite=False), len(blocks))
            self._transfer.advance(size)
        check_unchanged(record, digest)
        self._check_kept(record)

    def _check_kept(self, record: Record) -> None:
        """Check that the end of a file did not push out its beginning.

        Raises:
            ArenaFullError: blocks are gone already.
        """
        kept = wanted = 0
        for extent, size in enumerate(filechain.extent_sizes(record.size)):
            tokens = filechain.extent_tokens(record.sha256, extent, size)
            kept += len(self._chains.find(tokens).blocks)
            wanted += filechain.full_blocks(tokens)
        if kept < wanted:
            raise ArenaFullError(
                f"{kept} of {wanted} blocks were kept: the cluster has no room for the file",
                field="FILE",
            )

    def get(self, name: str, out: BinaryIO) -> Record:
        """Write the file stored under `name` to `out`; on any error what was written is void.

        Raises:
            NotFoundError: the name or a block of its file is not there.
            ChecksumError: the bytes are not the file's.
            KvorumError: the cluster is not there.
        """
        record, content = self.read_record(filechain.name_tokens(name))
        self._transfer.begin(record.size)
        digest = hashlib.sha256()
        if record.shares:
            self._take(content, digest, out)
        else:
            buffer = memoryview(bytearray(min(record.size, filechain.EXTENT_BYTES)))
            for extent, size in enumerate(filechain.extent_sizes(record.size)):
                data = buffer[:size]
                self._chains.fetch_into(filechain.extent_tokens(record.sha256, extent, size), data)
                self._take(data, digest, out)
        check_content(record, digest)
        return record

    def _take(self, data: memoryview, digest: hashlib._Hash, out: BinaryIO) -> None:
        digest.update(data)
        out.write(data)
        self._transfer.advance(data.nbytes)

    def read_record(self, tokens: TokenArray) -> tuple[Record, memoryview]:
        """Return the record of a name, and the file's bytes if they lie beside it.

        Raises:
            NotFoundError: nothing is stored there.
            ChecksumError: what is stored is no record of a name.
        """
        hit = self._chains.lookup(tokens, 1)
        (block,) = self._chains.fetch(hit, 1)
        record, content = Record.unpack(block)
        whole = record.shares == 1 and content.nbytes == record.size
        in_extents = record.shares == 0 and not content.nbytes
        if record.index or not (whole or in_extents):
            raise ChecksumError("the block holds no record of a name", field="payload")
        return record, content
