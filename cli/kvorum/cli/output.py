"""What a command writes: results on stdout, failures and progress on stderr.

Three forms: `--json` (one object a line), a terminal (rich tables and progress), and plain text
otherwise, so that pipes and logs carry no escape codes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from kvorum.cli.exits import CommandError, ExitCode, NotFoundError, UsageError, exit_code_of
from kvorum.core.errors import KvorumError

JsonObject = Mapping[str, Any]


def print_json(value: JsonObject) -> None:
    """Write `value` as one line of JSON on stdout, at once."""
    print(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")), flush=True)


def print_result(as_json: bool, value: JsonObject, text: str) -> None:
    """Write a result as JSON, or as the text for people."""
    if as_json:
        print_json(value)
    else:
        print(text, flush=True)


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def report(error: Exception, *, as_json: bool) -> ExitCode:
    """Write `error` as one line and return the exit status.

    As text it goes to stderr, as JSON to stdout, where a program reads results; to stderr after
    all if stdout takes nothing more, which may be the error itself.
    """
    value, exit_code = describe(error)
    if as_json:
        try:
            print_json({"error": value})
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # its last flush fails
        else:
            return exit_code
    print(_line(value), file=sys.stderr, flush=True)
    return exit_code


def describe(error: Exception) -> tuple[dict[str, Any], ExitCode]:
    """Return `error` as the value of the JSON key "error", and its exit status.

    Of a group, the first error counts: the others are what it caused.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    match error:
        case KvorumError():
            return _value(
                error.code.name, error.message, error.field, error.limit, error.retryable
            ), exit_code_of(error)
        case CommandError():
            value = _value(error.code, error.message, error.field, error.limit, retryable=False)
            if isinstance(error, NotFoundError):
                value["reason"] = error.reason or None
            return value, error.exit_code
        case click.ClickException():
            return _describe_click(error), ExitCode.USAGE
        case _:
            text = f"{type(error).__name__}: {error}; --debug shows where"
            return _value("INTERNAL", text, "", "", retryable=False), ExitCode.FAILURE


def _describe_click(error: click.ClickException) -> dict[str, Any]:
    field = ""
    match error:
        case click.NoSuchOption():
            field = error.option_name
        case click.BadParameter(param=click.Parameter() as param):
            field = param.opts[0] if param.param_type_name == "option" else str(param.name)
        case click.BadOptionUsage():
            field = error.option_name
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        message += f" See {context.command_path} --help"
    return _value(UsageError.code, message, field, "", retryable=False)


def _value(code: str, message: str, field: str, limit: str, retryable: bool) -> dict[str, Any]:
    return {
        "code": code,
        "message": message,
        "field": field or None,
        "limit": limit or None,
        "retryable": retryable,
    }


_PARTS: Final = ("field", "limit", "reason")


def _line(value: Mapping[str, Any]) -> str:
    """Return an error as one line, however many its message has."""
    message = " | ".join(str(value["message"]).splitlines())
    details = [f"{part}: {value[part]}" for part in _PARTS if value.get(part)]
    return "; ".join([f"kvorum: {value['code']}: {message}", *details])
