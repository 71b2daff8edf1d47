"""What `put`, `get` and `lookup` share: how a file is named in the cache, and its namespace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kvorum.cli.exits import UsageError
from kvorum.cli.filechain import Record, TokenArray
from kvorum.cli.sources import read_tokens

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

NAMESPACE_DEFAULT: Final = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Where a file lies, as the flags of `file_options` say.

    Attributes:
        namespace: a namespace of files.
        listed: token ids as text; None if not given.
        token_file: path of a file of token ids; None if not given.
    """

    namespace: str
    listed: str | None
    token_file: Path | None

    @property
    def by_tokens(self) -> bool:
        """Whether token ids were given."""
        return self.listed is not None or self.token_file is not None

    def key(self, name: str | None, flag: str) -> str | TokenArray:
        """Return the name, given as `flag`, or the token ids.

        Raises:
            UsageError: none or several were given; see also `kvorum.cli.sources.read_tokens`.
        """
        tokens = read_tokens(self.listed, self.token_file)
        if name is not None and tokens is None:
            return name
        if name is None and tokens is not None:
            return tokens
        raise UsageError(
            "the file needs one name", field=flag, limit=f"{flag}, --tokens or --token-file"
        )


def file_options(function: FunctionT) -> FunctionT:
    """Add `--namespace`, `--tokens` and `--token-file`, as one argument `naming`."""

    @click.option(
        "--namespace",
        envvar="KVORUM_NAMESPACE",
        default=NAMESPACE_DEFAULT,
        show_default=True,
        help="Namespace of files.",
    )
    @click.option("--tokens", "listed", metavar="ID,...", help="Name the file by token ids.")
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The same, from a JSON list or a NumPy .npy file.",
    )
    @functools.wraps(function)
    def wrapped(
        namespace: str, listed: str | None, token_file: Path | None, **flags: object
    ) -> object:
        naming = Naming(namespace=namespace, listed=listed, token_file=token_file)
        result: object = function(naming=naming, **flags)
        return result

    return wrapped  # type: ignore[return-value]  # click calls it with the flags' names


def describe(key: str | TokenArray, namespace: str, record: Record) -> Mapping[str, Any]:
    """Return what every answer about a file says of it."""
    named = {"name": key} if isinstance(key, str) else {"tokens": int(key.size)}
    return {
        "namespace": namespace,
        **named,
        "bytes": record.size,
        "sha256": record.sha256.hex(),
    }
