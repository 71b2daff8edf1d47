"""`kvorum version`: which Kvorum this is, and what it runs on."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from kvorum.cli.options import common_options
from kvorum.cli.output import print_result
from kvorum.core.limits import PROTOCOL_VERSION


@click.command("version")
@common_options
def command(as_json: bool) -> None:
    """Show versions of Kvorum and what it runs on."""
    value = {
        "kvorum": metadata.version("kvorum"),
        "protocol": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "grpcio": metadata.version("grpcio"),
        "numpy": metadata.version("numpy"),
        "platform": platform.platform(),
    }
    text = "\n".join(f"{name:<9} {what}" for name, what in value.items())
    print_result(as_json, value, text)
