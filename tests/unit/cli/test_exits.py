"""Goal: every failure has the exit code that the document says, and every code is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvorum.cli.exits import MEANING, ExitCode, exit_code_of
from kvorum.cli.main import COMMANDS
from kvorum.core import errors

DOCUMENT = Path(__file__).parents[3] / "docs" / "cli.md"
TEXT = DOCUMENT.read_text()


def test_document_lists_the_codes_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.+) \|$", TEXT, re.MULTILINE)
    assert rows == [(str(int(code)), code.name, MEANING[code]) for code in ExitCode]


def test_document_has_a_section_for_each_command() -> None:
    sections = " ".join(line for line in TEXT.splitlines() if line.startswith("## "))
    assert [name for name in COMMANDS if f"`kvorum {name}`" not in sections] == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidArgumentError, ExitCode.USAGE),
        (errors.TooLargeError, ExitCode.USAGE),
        (errors.FingerprintError, ExitCode.USAGE),
        (errors.ChecksumError, ExitCode.FAILURE),
        (errors.UnauthenticatedError, ExitCode.FAILURE),
        (errors.PermissionDeniedError, ExitCode.FAILURE),
        (errors.NamespaceNotFoundError, ExitCode.NOT_FOUND),
        (errors.NamespaceConflictError, ExitCode.FAILURE),
        (errors.ProtocolVersionError, ExitCode.FAILURE),
        (errors.MapMismatchError, ExitCode.FAILURE),
        (errors.InternalError, ExitCode.FAILURE),
        (errors.DeadlineError, ExitCode.UNAVAILABLE),
        (errors.UnavailableError, ExitCode.UNAVAILABLE),
    ],
)
def test_errors_lead_to_their_codes(error: type[errors.KvorumError], code: ExitCode) -> None:
    assert exit_code_of(error("x")) is code


def test_unavailable_means_that_a_retry_may_help() -> None:
    for cls in errors.ERROR_BY_CODE.values():
        assert (exit_code_of(cls("x")) is ExitCode.UNAVAILABLE) == cls.retryable
