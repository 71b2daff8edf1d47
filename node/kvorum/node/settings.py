"""Settings: reads a `NodeConfig` from flags, the environment and a TOML file, in that order.

All three use the names of `NodeConfig`'s fields, and in all three an unknown name is an error: a
misspelt limit must not silently be the default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Final

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.config import NodeConfig

ENVIRONMENT_PREFIX: Final = "KVORUM_NODE_"

SIZES: Final = frozenset({"memory", "part_max", "pipe_bytes_max", "window"})
"""Settings that take a size such as "512MiB"."""

_UNITS: Final = {"": 1, "b": 1} | {
    prefix + suffix: base**power
    for suffix, base in (("b", 1000), ("ib", 1024))
    for power, prefix in enumerate("kmgt", start=1)
}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)


def parse_size(text: str, field: str = "size") -> int:
    """Return the bytes that `text` names: "512MiB", "1.5 GB", "65536".

    Raises:
        InvalidArgumentError: not a number with one of the units B, kB, MB, GB, TB, KiB, MiB, GiB,
            TiB, or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InvalidArgumentError(
            f"{text!r:.100} is no size", field=field, limit="a number with B, kB, KiB, MiB, GiB ..."
        )
    size = float(match[1]) * unit if "." in match[1] else int(match[1]) * unit
    if size != int(size):
        raise InvalidArgumentError(
            f"{text!r} is not a whole number of bytes", field=field, limit="whole bytes"
        )
    return int(size)


def load_config(
    flags: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
    toml_text: str = "",
) -> NodeConfig:
    """Return the configuration: a flag goes before the environment, that before the file.

    Args:
        flags: settings by field name; those that are None were not given.
        environment: all environment variables; only those with `ENVIRONMENT_PREFIX` count.
        toml_text: text of a settings file; empty for none.

    Raises:
        InvalidArgumentError: a name is unknown, a value is of another type, or see
            `NodeConfig.validate`.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    merged = _known(_table(toml_text)) | _known(_named(environment or {})) | _known(given)
    missing = [f.name for f in fields(NodeConfig) if f.default is MISSING and f.name not in merged]
    for name in missing:
        raise InvalidArgumentError(f"{name} is not set", field=name, limit="required")
    values = {name: _parse(name, value) for name, value in merged.items()}
    return NodeConfig(**values)  # type: ignore[arg-type]  # each parser returns its field's type


def _table(toml_text: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(toml_text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(
            f"the settings file is not TOML: {error}", field="settings", limit="TOML 1.0"
        ) from error


def _named(environment: Mapping[str, str]) -> Mapping[str, object]:
    return {
        key.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for key, value in environment.items()
        if key.startswith(ENVIRONMENT_PREFIX)
    }


def _known(values: Mapping[str, object]) -> dict[str, object]:
    names = {field.name for field in fields(NodeConfig)}
    for name in values:
        if name not in names:
            raise InvalidArgumentError(
                f"there is no setting {name!r:.100}", field=name[:100], limit=", ".join(names)
            )
    return dict(values)


def _parse(name: str, value: object) -> object:
    types = {field.name: str(field.type) for field in fields(NodeConfig)}
    kind = "size" if name in SIZES else types[name]
    if isinstance(value, str):
        return _FROM_TEXT[kind](name, value)
    wanted: dict[str, type | tuple[type, ...]] = {"size": int, "int": int, "float": (int, float)}
    if isinstance(value, bool) or kind not in wanted or not isinstance(value, wanted[kind]):
        raise _wrong(name, kind)
    return value


def _number(name: str, text: str, parse: Callable[[str], object], kind: str) -> object:
    try:
        return parse(text)
    except ValueError:
        raise _wrong(name, kind) from None


_FROM_TEXT: Final[Mapping[str, Callable[[str, str], object]]] = {
    "size": lambda name, text: parse_size(text, name),
    "int": lambda name, text: _number(name, text, int, "int"),
    "float": lambda name, text: _number(name, text, float, "float"),
    "str": lambda _, text: text,
}


def _wrong(name: str, kind: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} is of another type",
        field=name,
        limit={"str": "text", "int": "an integer", "float": "a number", "size": "a size"}[kind],
    )
