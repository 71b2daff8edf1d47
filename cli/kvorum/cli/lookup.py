"""`kvorum lookup`: say what is stored under a name or a token list, without reading it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import click

from kvorum.cli import filechain
from kvorum.cli.chains import blocks_there, miss_error
from kvorum.cli.exits import ExitCode, NotFoundError
from kvorum.cli.filechain import BLOCK_TOKENS, TokenArray
from kvorum.cli.fileoptions import Naming, file_options
from kvorum.cli.filestore import FileStore
from kvorum.cli.options import Connection, common_options, connection_options
from kvorum.cli.output import print_result
from kvorum.cli.progress import Transfer
from kvorum.cli.sizes import format_count, format_size
from kvorum.client import Client, MissReason
from kvorum.core.errors import NamespaceNotFoundError


@dataclass(slots=True)
class Found:
    """What lookups found of one or several chains.

    Attributes:
        blocks: blocks found, each chain's up to its first miss.
        blocks_total: full blocks that were looked for.
        size: bytes of the blocks found.
        zones: blocks that each zone holds.
        reason: why the first missing block is missing; None if none is.
    """

    blocks: int = 0
    blocks_total: int = 0
    size: int = 0
    zones: dict[str, int] = field(default_factory=dict)
    reason: MissReason | None = None

    def look(self, client: Client, tokens: TokenArray, timeout_s: float) -> None:
        """Look one chain up and add what was found."""
        self.blocks_total += tokens.size // BLOCK_TOKENS
        hit = client.lookup(tokens, budget_s=timeout_s, lease_s=0.0)
        self.blocks += len(hit.blocks)
        self.size += sum(block.size_bytes for block in hit.blocks)
        self.reason = self.reason or hit.reason
        for stat in client.stat(tokens[: hit.tokens]) if hit else ():
            for zone in stat.zones:
                self.zones[zone] = self.zones.get(zone, 0) + 1

    def raise_if_unknown(self) -> None:
        """Check that what is missing is known to be missing.

        Raises:
            KvorumError: the cluster could not be asked.
        """
        error = miss_error(self.reason, blocks_there(self.blocks, self.blocks_total))
        if not isinstance(error, NotFoundError):
            raise error


@click.command("lookup")
@click.argument("name", required=False)
@file_options
@connection_options
@common_options
def command(*, name: str | None, naming: Naming, connection: Connection, as_json: bool) -> int:
    """Say what is stored under NAME or a token list: prefix, zones, sizes, and why it ends.

    Exits with 3 if nothing is found, or not all blocks of a name.
    """
    key = naming.key(name, "NAME")
    found = Found()
    record_size: int | None = None
    try:
        with connection.files(naming.namespace, create=False) as client:
            if isinstance(key, str):
                record_size = _look_name(client, key, connection.timeout_s, found)
            else:
                filechain.full_blocks(key)
                found.look(client, key, connection.timeout_s)
    except NamespaceNotFoundError:
        found.blocks_total = 1 if isinstance(key, str) else filechain.full_blocks(key)
        found.reason = MissReason.NEVER_STORED
    whole = found.blocks == found.blocks_total
    good = whole if isinstance(key, str) else found.blocks > 0
    if not good:
        found.raise_if_unknown()
    value: dict[str, Any] = {"namespace": naming.namespace, "found": good, **_named(key, found)}
    if record_size is not None:
        value["bytes"] = record_size
    value |= {
        "blocks_found": found.blocks,
        "blocks_total": found.blocks_total,
        "stored_bytes": found.size,
        "zones": found.zones,
        "reason": found.reason.name if found.reason else None,
    }
    print_result(as_json, value, _text(key, found, good))
    return ExitCode.OK if good else ExitCode.NOT_FOUND


def _look_name(client: Client, name: str, timeout_s: float, found: Found) -> int | None:
    """Look up a name and the extents of its file; return the file's size if the name is there."""
    tokens = filechain.name_tokens(name)
    found.look(client, tokens, timeout_s)
    if not found.blocks:
        return None
    record, _ = FileStore(client, timeout_s, Transfer("reading")).read_record(tokens)
    if not record.shares:
        for extent, size in enumerate(filechain.extent_sizes(record.size)):
            found.look(client, filechain.extent_tokens(record.sha256, extent, size), timeout_s)
    return record.size


def _named(key: str | TokenArray, found: Found) -> dict[str, Any]:
    if isinstance(key, str):
        return {"name": key}
    return {"tokens": int(key.size), "tokens_found": found.blocks * BLOCK_TOKENS}


def _text(key: str | TokenArray, found: Found, good: bool) -> str:
    what = key if isinstance(key, str) else f"{found.blocks * BLOCK_TOKENS} of {key.size} tokens"
    total = format_count(found.blocks_total, "block")
    parts = [
        f"{what}: {found.blocks} of {total}, {format_size(found.size)}",
        *(f"zone {zone} holds {count}" for zone, count in sorted(found.zones.items())),
    ]
    if found.reason is not None:
        parts.append(f"the next is missing: {found.reason.name}")
    return ("found " if good else "not found ") + "; ".join(parts)
