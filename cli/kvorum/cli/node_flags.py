"""The flags of `kvorum node`: one for each setting of `NodeConfig`, by its name and text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Final, TypeVar

import click

from kvorum.cli.sizes import format_size
from kvorum.node.config import NodeConfig
from kvorum.node.settings import ENVIRONMENT_PREFIX, SIZES

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_METAVARS: Final = {"int": "NUMBER", "float": "SECONDS", "str": "TEXT"}


def config_options(function: FunctionT) -> FunctionT:
    """Add a flag for every setting; one that is not given is None."""
    described = descriptions(NodeConfig)
    for setting in reversed(fields(NodeConfig)):
        function = click.option(
            flag_of(setting.name),
            setting.name,
            metavar="SIZE" if setting.name in SIZES else _METAVARS[str(setting.type)],
            help=_help(setting, described[setting.name]),
        )(function)
    return function


def flag_of(name: str) -> str:
    """Return the flag of the setting `name`."""
    return "--" + name.replace("_", "-")


def environment_of(name: str) -> str:
    """Return the environment variable of the setting `name`."""
    return ENVIRONMENT_PREFIX + name.upper()


def descriptions(cls: type) -> Mapping[str, str]:
    """Return what the docstring of `cls` says of each attribute, as one line."""
    _, _, section = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    section = section.partition("\n\n")[0]
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _help(setting: Field[Any], description: str) -> str:
    text = description[0].upper() + description[1:].removesuffix(".") + "."
    if setting.default not in (MISSING, ""):
        default = format_size(setting.default) if setting.name in SIZES else setting.default
        text += f" Default: {default}."
    return f"{text} [{environment_of(setting.name)}]"
