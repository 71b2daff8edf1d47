"""`kvorum put`: store a file under a name or a token list."""

from __future__ import annotations

from pathlib import Path

import click

from kvorum.cli.exits import UsageError
from kvorum.cli.fileoptions import Naming, describe, file_options
from kvorum.cli.filestore import FileStore
from kvorum.cli.options import Connection, common_options, connection_options
from kvorum.cli.output import print_result
from kvorum.cli.progress import transfer_bar
from kvorum.cli.sizes import format_count, format_size
from kvorum.cli.sources import STANDARD, open_source
from kvorum.cli.tokenstore import TokenStore
from kvorum.client import NamespacePolicy
from kvorum.core.limits import REPLICAS_MAX


@click.command("put")
@click.argument("file", metavar="FILE")
@click.option("--name", help="Name of the file in the cache; that of FILE unless told.")
@click.option("--overwrite", is_flag=True, help="Replace another file of that name.")
@click.option(
    "--replicas",
    type=click.IntRange(0, REPLICAS_MAX),
    default=0,
    help="Zones that hold each block, when the namespace is made; 0 for the default of two.",
)
@file_options
@connection_options
@common_options
def command(  # noqa: PLR0913  # click gives each flag as an argument
    *,
    file: str,
    name: str | None,
    overwrite: bool,
    replicas: int,
    naming: Naming,
    connection: Connection,
    as_json: bool,
) -> None:
    """Store FILE ("-" for stdin) under a name or a token list.

    A name can be replaced with --overwrite; readers see the old file or the new one. Blocks of a
    token list never change, and tokens behind the last full block of 16 do not count.
    """
    if name is None and not naming.by_tokens and file != STANDARD:
        name = Path(file).name
    key = naming.key(name, "--name")
    if overwrite and not isinstance(key, str):
        raise UsageError("blocks of a token list never change", field="--overwrite")
    policy = NamespacePolicy(replicas=replicas)
    with (
        open_source(file) as source,
        connection.files(naming.namespace, create=True, policy=policy) as client,
        transfer_bar("storing", quiet=as_json) as transfer,
    ):
        if isinstance(key, str):
            outcome = FileStore(client, connection.timeout_s, transfer).put(
                key, source, overwrite=overwrite
            )
        else:
            outcome = TokenStore(client, connection.timeout_s, transfer).put(key, source)
    value = {
        **describe(key, naming.namespace, outcome.record),
        "blocks": outcome.blocks,
        "stored": outcome.stored,
        "already_stored": outcome.already_stored,
        "zones": sorted(outcome.zones),
    }
    what = key if isinstance(key, str) else format_count(int(key.size), "token")
    text = (
        f"{'stored' if outcome.stored else 'already stored'} {what}: "
        f"{format_size(outcome.record.size)} in {format_count(outcome.blocks, 'block')}, "
        f"acknowledged by zone {', '.join(sorted(outcome.zones))}"
    )
    print_result(as_json, value, text)
