"""Contents of files: measured before they are stored, compared when they are stored and read."""

from __future__ import annotations

import hashlib
import io
from typing import Final

from kvorum.cli import filechain
from kvorum.cli.exits import FileError
from kvorum.cli.filechain import Record
from kvorum.core.errors import ChecksumError

_READ_BYTES: Final = 1 << 20


def measure(file: io.BufferedIOBase, limit: int) -> Record:
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


def read_into(file: io.BufferedIOBase, data: memoryview) -> int:
    """Fill `data` from the file; return how many bytes there were."""
    done = 0
    while done < data.nbytes and (count := file.readinto(data[done:])):
        done += count
    return done


def check_unchanged(record: Record, digest: hashlib._Hash) -> None:
    """Check that what was read to be stored is what was measured.

    Raises:
        FileError: it is not.
    """
    if digest.digest() != record.sha256:
        raise changed()


def changed() -> FileError:
    """Return the error for a file that was another one when it was read again."""
    return FileError("the file changed while it was being read", field="FILE")


def check_content(record: Record, digest: hashlib._Hash) -> None:
    """Check that what arrived is the file.

    Raises:
        ChecksumError: it is not.
    """
    if digest.digest() != record.sha256:
        raise ChecksumError(
            "the bytes that arrived are not those of the file", field="payload", limit="SHA-256"
        )
