"""Files in the cache: stores and reads them in the form of `kvorum.cli.filechain`.

A file is read whole or not at all: every share is checked against its record and the whole against
its SHA-256, over and above the checksums of the client.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from kvorum.cli import filechain
from kvorum.cli.exits import ConflictError, FileError, NotFoundError
from kvorum.cli.filechain import Record, TokenArray
from kvorum.cli.progress import Transfer
from kvorum.cli.sizes import format_count
from kvorum.client import Client, Hit, MissReason, StoreResult
from kvorum.core.errors import (
    ArenaFullError,
    ChecksumError,
    DeadlineError,
    InternalError,
    PermissionDeniedError,
    UnavailableError,
)

_READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Stored:
    """What a store came to.

    Attributes:
        record: what was stored.
        blocks: blocks of the file.
        stored: blocks that were new.
        already_stored: blocks that were there already.
        zones: zones that acknowledged at least one block.
    """

    record: Record
    blocks: int = 0
    stored: int = 0
    already_stored: int = 0
    zones: set[str] = field(default_factory=set)

    def add(self, result: StoreResult, blocks: int) -> None:
        """Count one store of the client.

        Raises:
            KvorumError: a block was refused.
        """
        for error in result.errors:
            raise error
        if result.stored + result.already_stored != blocks:
            raise InternalError(f"a store of {blocks} blocks answered {result}")
        self.blocks += blocks
        self.stored += result.stored
        self.already_stored += result.already_stored
        self.zones.update(result.zones)


class FileStore:
    """Stores and reads files through one client of a namespace of files.

    Args:
        client: connected to a namespace with `filechain.FINGERPRINT`.
        timeout_s: seconds that each call may take; a large file takes one for every 64 MiB.
        transfer: told how it goes.
    """

    def __init__(self, client: Client, timeout_s: float, transfer: Transfer) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._transfer = transfer

    def put_name(self, name: str, file: io.BufferedIOBase, *, overwrite: bool) -> Stored:
        """Store a seekable file under a name; a reader sees the old file or all of the new one.

        Raises:
            ConflictError: the name holds another file, and `overwrite` is False.
            FileError: the file changed meanwhile.
            ArenaFullError: the cluster did not keep all of it.
            KvorumError: the cluster refused a block, or is not there.
        """
        tokens = filechain.name_tokens(name)
        record = _measure(file, filechain.FILE_BYTES_MAX)
        outcome = Stored(record)
        self._transfer.begin(record.size)
        if record.size <= filechain.INLINE_BYTES_MAX:
            record = Record(record.sha256, record.size, 0, 1)
            content = file.read()
            _check_unchanged(record, hashlib.sha256(content))
            block = record.pack(content)
        else:
            self._put_extents(record, file, outcome)
            block = record.pack()
        result = self._store(tokens, [block], overwrite=overwrite)
        outcome.add(result, 1)
        if result.already_stored and not overwrite:
            held = self._held(tokens)
            if not held.same_file(record):
                raise ConflictError(
                    f"{name!r} holds another file, of {held.size} bytes; --overwrite replaces it",
                    field="--name",
                )
        self._transfer.advance(record.size if record.shares else 0)
        return outcome

    def _held(self, tokens: TokenArray) -> Record:
        """Return the record that kept ours out."""
        try:
            return self.read_record(tokens)[0]
        except NotFoundError as error:
            raise UnavailableError(
                "the name was given up while it was compared", field="--name"
            ) from error

    def _put_extents(self, record: Record, file: io.BufferedIOBase, outcome: Stored) -> None:
        buffer = memoryview(bytearray(filechain.EXTENT_BYTES))
        digest = hashlib.sha256()
        for extent, size in enumerate(filechain.extent_sizes(record.size)):
            data = buffer[:size]
            if _read_into(file, data) != size:
                raise _changed()
            digest.update(data)
            blocks = filechain.cut(data, filechain.BLOCK_BYTES)
            tokens = filechain.extent_tokens(record.sha256, extent, size)
            outcome.add(self._store(tokens, blocks, overwrite=False), len(blocks))
            self._transfer.advance(size)
        _check_unchanged(record, digest)
        self._check_kept(record)

    def _check_kept(self, record: Record) -> None:
        """Check that the end of a file did not push out its beginning.

        Raises:
            ArenaFullError: blocks are gone already.
        """
        kept = wanted = 0
        for extent, size in enumerate(filechain.extent_sizes(record.size)):
            tokens = filechain.extent_tokens(record.sha256, extent, size)
            kept += len(self._client.lookup(tokens, budget_s=self._timeout_s).blocks)
            wanted += filechain.full_blocks(tokens)
        if kept < wanted:
            raise ArenaFullError(
                f"{kept} of {wanted} blocks were kept: the cluster has no room for the file",
                field="FILE",
            )

    def get_name(self, name: str, out: BinaryIO) -> Record:
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
                self._fetch(filechain.extent_tokens(record.sha256, extent, size), data)
                self._take(data, digest, out)
        _check_content(record, digest)
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
        hit = self._lookup(tokens, 1)
        (block,) = self._fetch_hit(hit, 1)
        record, content = Record.unpack(block)
        whole = record.shares == 1 and content.nbytes == record.size
        in_extents = record.shares == 0 and not content.nbytes
        if record.index or not (whole or in_extents):
            raise ChecksumError("the block holds no record of a name", field="payload")
        return record, content

    def put_tokens(self, tokens: TokenArray, file: io.BufferedIOBase) -> Stored:
        """Store a seekable file in the full blocks of a token list.

        Raises:
            ConflictError: a block of the list holds something else. Blocks of tokens never change.
            FileError: the file changed meanwhile.
            KvorumError: the cluster refused a block, or is not there.
        """
        count = filechain.full_blocks(tokens)
        record = _measure(file, filechain.TOKEN_FILE_BYTES_MAX)
        content = file.read()
        _check_unchanged(record, hashlib.sha256(content))
        blocks = filechain.shares(memoryview(content), record.sha256, count)
        outcome = Stored(record)
        self._check_prefix(tokens, blocks)
        outcome.add(self._store(tokens, blocks, overwrite=False), count)
        if outcome.already_stored:
            self._check_prefix(tokens, blocks)
        self._transfer.advance(record.size)
        return outcome

    def _check_prefix(self, tokens: TokenArray, blocks: Sequence[bytes]) -> None:
        """Check that what the cache holds of the list is what would be stored."""
        hit = self._client.lookup(tokens, budget_s=self._timeout_s)
        if not hit:
            return
        for index, block in enumerate(self._fetch_hit(hit, len(hit.blocks))):
            if block != blocks[index]:
                raise ConflictError(
                    f"block {index} of the token list holds something else already",
                    field="--tokens",
                )

    def get_tokens(self, tokens: TokenArray, out: BinaryIO) -> tuple[Record, int]:
        """Write the file stored under a prefix of `tokens` to `out`.

        Returns:
            Its record, and how many tokens name it.

        Raises:
            NotFoundError: no file is there, or not all of it.
            ChecksumError: the blocks are not those of one file.
            KvorumError: the cluster is not there.
        """
        filechain.full_blocks(tokens)
        hit = self._lookup(tokens, 1)
        blocks = self._fetch_hit(hit, len(hit.blocks))
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
            self._take(share, digest, out)
        _check_content(first, digest)
        return first, first.shares * filechain.BLOCK_TOKENS

    def _store(
        self, tokens: TokenArray, blocks: Sequence[bytes] | Sequence[memoryview], *, overwrite: bool
    ) -> StoreResult:
        return self._client.store(tokens, blocks, overwrite=overwrite, deadline_s=self._timeout_s)

    def _lookup(self, tokens: TokenArray, count: int) -> Hit:
        """Return a hit of at least `count` blocks."""
        hit = self._client.lookup(tokens, budget_s=self._timeout_s)
        if len(hit.blocks) < count:
            raise miss_error(hit.reason, blocks_there(len(hit.blocks), count))
        return hit

    def _fetch_hit(self, hit: Hit, count: int) -> list[memoryview]:
        fetched = self._client.fetch(hit, deadline_s=self._timeout_s)
        if len(fetched.blocks) < count:
            raise miss_error(
                fetched.reason, f"{len(fetched.blocks)} of {format_count(count, 'block')} arrived"
            )
        return list(fetched.blocks)

    def _fetch(self, tokens: TokenArray, into: memoryview) -> None:
        """Fetch every block of `tokens` into one buffer that they fill exactly."""
        count = filechain.full_blocks(tokens)
        hit = self._lookup(tokens, count)
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


def _measure(file: io.BufferedIOBase, limit: int) -> Record:
    """Return the record of a file, rewound; reads it once."""
    size = file.seek(0, io.SEEK_END)
    filechain.check_file_size(size, limit)
    file.seek(0)
    digest = hashlib.sha256()
    size = 0
    while chunk := file.read(_READ_BYTES):
        digest.update(chunk)
        size += len(chunk)
        filechain.check_file_size(size, limit)
    file.seek(0)
    return Record(digest.digest(), size)


def _read_into(file: io.BufferedIOBase, data: memoryview) -> int:
    """Fill `data` from the file; return how many bytes there were."""
    done = 0
    while done < data.nbytes and (count := file.readinto(data[done:])):
        done += count
    return done


def _check_unchanged(record: Record, digest: hashlib._Hash) -> None:
    if digest.digest() != record.sha256:
        raise _changed()


def _changed() -> FileError:
    return FileError("the file changed while it was being read", field="FILE")


def _check_content(record: Record, digest: hashlib._Hash) -> None:
    if digest.digest() != record.sha256:
        raise ChecksumError(
            "the bytes that arrived are not those of the file", field="payload", limit="SHA-256"
        )
