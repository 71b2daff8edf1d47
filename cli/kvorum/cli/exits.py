"""Exit codes of every command, and which failure leads to which. `docs/cli.md` documents them."""

from __future__ import annotations

import enum
from typing import ClassVar

from kvorum.core.errors import (
    ChecksumError,
    ErrorCode,
    InvalidArgumentError,
    KvorumError,
    NamespaceNotFoundError,
)


class ExitCode(enum.IntEnum):
    """What a command's exit status means."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANING: dict[ExitCode, str] = {
    ExitCode.OK: "It did what was asked; for `up`, `node` and `status --watch`, it was "
    "asked to stop.",
    ExitCode.FAILURE: "A check did not hold, the request was refused for good, or Kvorum has a "
    "defect.",
    ExitCode.USAGE: "The command line, a file or a value given to it is not usable as it is.",
    ExitCode.NOT_FOUND: "What was asked for is not in the cache.",
    ExitCode.UNAVAILABLE: "The cluster cannot be reached, has no room or is too slow; the same "
    "command may succeed later.",
    ExitCode.INTERRUPTED: "Interrupted by Ctrl-C before it was done.",
    ExitCode.BROKEN_PIPE: "The reader of its output went away.",
}
"""One sentence for each code, as documented."""


class CommandError(Exception):
    """A failure that only the command line knows; `KvorumError` covers the others.

    Attributes:
        code: short constant name, for programs.
        exit_code: the exit status that it leads to.
        field: flag or argument at fault; empty if none.
        limit: the limit that was broken, as text with its unit; empty if none.
    """

    code: ClassVar[str] = "FAILURE"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE

    def __init__(self, message: str, *, field: str = "", limit: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.limit = limit


class NotFoundError(CommandError):
    """What was asked for is not in the cache; `reason` is the miss reason.

    `reason` is empty if none is known.
    """

    code = "NOT_FOUND"
    exit_code = ExitCode.NOT_FOUND

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class ConflictError(CommandError):
    """The name, or the tokens, hold something else already."""

    code = "CONFLICT"


class UsageError(CommandError):
    """The command line is not usable as it is."""

    code = ErrorCode.INVALID_ARGUMENT.name
    exit_code = ExitCode.USAGE


class FileError(CommandError):
    """A file named on the command line cannot be read or written."""

    code = "FILE"
    exit_code = ExitCode.USAGE


def exit_code_of(error: KvorumError) -> ExitCode:
    """Return the exit status that `error` leads to."""
    if error.retryable:
        return ExitCode.UNAVAILABLE
    match error:
        case ChecksumError():
            return ExitCode.FAILURE
        case InvalidArgumentError():
            return ExitCode.USAGE
        case NamespaceNotFoundError():
            return ExitCode.NOT_FOUND
        case _:
            return ExitCode.FAILURE
