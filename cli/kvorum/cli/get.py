"""`kvorum get`: read a file back, verified and whole or not at all."""

from __future__ import annotations

import sys

import click

from kvorum.cli.exits import UsageError
from kvorum.cli.fileoptions import Naming, describe, file_options
from kvorum.cli.filestore import FileStore
from kvorum.cli.options import Connection, common_options, connection_options
from kvorum.cli.output import print_json
from kvorum.cli.progress import transfer_bar
from kvorum.cli.sizes import format_size
from kvorum.cli.sources import STANDARD, open_target
from kvorum.cli.tokenstore import TokenStore


@click.command("get")
@click.argument("name", required=False)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help='Where to write it, "-" for stdout. The file appears whole or not at all.',
)
@file_options
@connection_options
@common_options
def command(
    *, name: str | None, output: str, naming: Naming, connection: Connection, as_json: bool
) -> None:
    """Read the file NAME, or the one that a prefix of a token list names."""
    key = naming.key(name, "NAME")
    if as_json and output == STANDARD:
        raise UsageError("--json and the file cannot share stdout", field="--output")
    with (
        connection.files(naming.namespace, create=False) as client,
        open_target(output) as target,
        transfer_bar("reading", quiet=as_json) as transfer,
    ):
        if isinstance(key, str):
            record = FileStore(client, connection.timeout_s, transfer).get(key, target)
            found = {}
        else:
            record, tokens_found = TokenStore(client, connection.timeout_s, transfer).get(
                key, target
            )
            found = {"tokens_found": tokens_found}
        zones = dict(client.stats.fetched_bytes_by_zone)
    if as_json:
        print_json(
            {
                **describe(key, naming.namespace, record),
                **found,
                "output": output,
                "bytes_by_zone": zones,
            }
        )
    else:
        # On stderr, because stdout may carry the file.
        what = key if isinstance(key, str) else f"{found['tokens_found']} of {key.size} tokens"
        print(f"read {what}: {format_size(record.size)}, verified", file=sys.stderr)
