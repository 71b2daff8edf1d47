"""TOML tables read strictly, and TOML text written: what the cluster file is made of.

Every key is taken by name and type; `Table.end` then refuses what was not taken, so that a
misspelt setting is an error and never a silent default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Self

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError

_ABSENT: Final = object()
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f\x7f]')


class Table:
    """One table of a TOML text whose keys are taken one by one."""

    def __init__(self, values: Mapping[str, object], path: str) -> None:
        self._left = dict(values)
        self._path = path

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the top-level table of `text`.

        Raises:
            InvalidArgumentError: not TOML.
            TooLargeError: longer than `limits.CLUSTER_FILE_CHARS_MAX`.
        """
        if len(text) > limits.CLUSTER_FILE_CHARS_MAX:
            raise TooLargeError(
                f"the cluster file has {len(text)} characters",
                field="cluster file",
                limit=f"{limits.CLUSTER_FILE_CHARS_MAX} characters",
            )
        try:
            return cls(tomllib.loads(text), "")
        except (ValueError, RecursionError) as error:  # ValueError: also integers without end
            raise InvalidArgumentError(
                f"the cluster file is not TOML: {error}", field="cluster file", limit="TOML 1.0"
            ) from error

    def path(self, name: str) -> str:
        """Return the dotted path of a key, for error messages."""
        return f"{self._path}.{name}" if self._path else name

    @contextmanager
    def located(self) -> Iterator[None]:
        """Make errors of the value that is built from this table name their place in the file."""
        try:
            yield
        except InvalidArgumentError as error:
            field = self.path(error.field.partition(".")[2])
            raise type(error)(error.message, field=field, limit=error.limit) from error

    def text(self, name: str) -> str:
        """Take a string.

        Raises:
            InvalidArgumentError: missing, or not a string.
        """
        value = self._take(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """Take an integer.

        Raises:
            InvalidArgumentError: missing without a default, or not an integer.
        """
        value = self._take(name, _ABSENT if default is None else default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "an integer")
        return value

    def table(self, name: str) -> Table:
        """Take a table.

        Raises:
            InvalidArgumentError: missing, or not a table.
        """
        value = self._take(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "a table")
        return Table(value, self.path(name))

    def tables(self, name: str) -> list[Table] | None:
        """Take an array of tables; None if it is absent.

        Raises:
            InvalidArgumentError: not an array of tables.
        """
        value = self._take(name, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self._wrong(name, "an array of tables")
        return [Table(item, f"{self.path(name)}[{i}]") for i, item in enumerate(value)]

    def rest(self) -> dict[str, object]:
        """Take everything that is left."""
        left, self._left = self._left, {}
        return left

    def end(self) -> None:
        """Check that nothing is left.

        Raises:
            InvalidArgumentError: a key is unknown.
        """
        for name in self._left:
            raise InvalidArgumentError(
                f"{self.path(name)} is unknown", field=self.path(name), limit="known keys"
            )

    def _take(self, name: str, default: object = _ABSENT) -> object:
        value = self._left.pop(name, default)
        if value is _ABSENT:
            raise InvalidArgumentError(
                f"{self.path(name)} is missing", field=self.path(name), limit="required"
            )
        return value

    def _wrong(self, name: str, kind: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{self.path(name)} is of another type", field=self.path(name), limit=kind
        )


def quoted(text: str) -> str:
    """Return `text` as a TOML basic string."""
    return '"' + _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + '"'


def pairs(values: Mapping[str, str | int]) -> str:
    """Return `key = value` lines."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def inline(values: Mapping[str, str | int]) -> str:
    """Return an inline table."""
    return "{ " + ", ".join(f"{key} = {_value(value)}" for key, value in values.items()) + " }"


def _value(value: str | int) -> str:
    return quoted(value) if isinstance(value, str) else str(value)
