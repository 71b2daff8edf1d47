"""Goal: whatever goes wrong is one line for people and one object for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kvorum.cli.exits import ConflictError, ExitCode, NotFoundError
from kvorum.cli.main import COMMANDS, run
from kvorum.cli.output import report
from kvorum.core.errors import ArenaFullError, TooLargeError


def test_text_names_code_field_and_limit_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = TooLargeError("two\nlines", field="FILE", limit="5 bytes")
    assert report(error, as_json=False) is ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "kvorum: TOO_LARGE: two | lines; field: FILE; limit: 5 bytes\n"


def test_json_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(ArenaFullError("full"), as_json=True) is ExitCode.UNAVAILABLE
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "error": {
            "code": "ARENA_FULL",
            "message": "full",
            "field": None,
            "limit": None,
            "retryable": True,
        }
    }


@pytest.mark.parametrize("args", [["version"], ["no-such-command"]])
def test_a_full_stdout_is_one_line_on_stderr(args: list[str]) -> None:
    """Goal: neither a result nor an error that cannot be written is a traceback."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kvorum.cli.main", *args, "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode
    assert done.stderr.startswith("kvorum: ")
    assert done.stderr.count("\n") == 1


def test_a_miss_has_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(NotFoundError("gone", reason="EVICTED"), as_json=True) is ExitCode.NOT_FOUND
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "EVICTED"


def test_a_conflict_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(ConflictError("held"), as_json=False) is ExitCode.FAILURE
    assert "CONFLICT" in capsys.readouterr().err


def test_of_a_group_the_first_error_counts(capsys: pytest.CaptureFixture[str]) -> None:
    inner = ExceptionGroup("inner", [TooLargeError("much"), ValueError("other")])
    assert report(ExceptionGroup("outer", [inner]), as_json=False) is ExitCode.USAGE
    assert capsys.readouterr().err == "kvorum: TOO_LARGE: much\n"


def test_a_defect_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(ZeroDivisionError("by zero"), as_json=False) is ExitCode.FAILURE
    err = capsys.readouterr().err
    assert err == "kvorum: INTERNAL: ZeroDivisionError: by zero; --debug shows where\n"


@pytest.mark.parametrize(
    ("args", "field"),
    [
        (["up", "--nope"], "--nope"),
        (["up", "--zones", "many"], "--zones"),
        (["get", "name"], "-o"),
        (["put"], "file"),
        (["status", "--timeout", "0"], "--timeout"),
        (["put", "x", "--replicas", "9"], "--replicas"),
    ],
)
def test_bad_flags_name_the_flag(
    args: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*args, "--json"]) == ExitCode.USAGE
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["field"]) == ("INVALID_ARGUMENT", field)


def test_an_unknown_command_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["versio"]) == ExitCode.USAGE
    assert "versio" in capsys.readouterr().err


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert [name for name in COMMANDS if name not in err] == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "--json" in out
    assert out.startswith(f"Usage: kvorum {name} ")


def test_interruption_has_its_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "invoke", interrupted)
    assert run(["version"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "kvorum: interrupted\n"


def test_version_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == ExitCode.OK
    value = json.loads(capsys.readouterr().out)
    assert value["protocol"] == 1
    assert set(value) == {"kvorum", "protocol", "python", "grpcio", "numpy", "platform"}
