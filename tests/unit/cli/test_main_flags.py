"""Goal: docs/cli.md knows every flag, and the flags of a node are its settings."""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path

import click
import pytest

from kvorum.cli.main import COMMANDS
from kvorum.cli.node_flags import descriptions, environment_of, flag_of
from kvorum.node.config import NodeConfig

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
SETTINGS = {field.name for field in fields(NodeConfig)}


def command(name: str) -> click.Command:
    found = importlib.import_module(COMMANDS[name][0]).command
    assert isinstance(found, click.Command)
    return found


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_every_flag_is_documented(name: str) -> None:
    flags = [
        option.opts[-1]
        for option in command(name).params
        if isinstance(option, click.Option) and option.name not in SETTINGS
    ]
    assert flags
    assert [flag for flag in flags if flag not in TEXT] == []


def test_every_setting_is_a_flag_described_in_words() -> None:
    options = {option.name: option for option in command("node").params}
    assert set(options) >= SETTINGS
    for name in SETTINGS:
        option = options[name]
        assert isinstance(option, click.Option)
        assert option.opts == [flag_of(name)]
        assert option.help is not None
        assert environment_of(name) in option.help


def test_descriptions_join_lines_and_stop_at_the_section() -> None:
    class Sample:
        """Something.

        Attributes:
            one: first
                and more.
            two: second.

        Raises:
            ValueError: never.
        """

    assert descriptions(Sample) == {"one": "first and more.", "two": "second."}
