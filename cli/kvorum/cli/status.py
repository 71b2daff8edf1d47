"""`kvorum status`: zones, shards, health, fill, hit ratio and replication lag."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from kvorum.cli.exits import ExitCode
from kvorum.cli.options import Connection, common_options, connection_options
from kvorum.cli.output import is_terminal, print_json
from kvorum.cli.status_report import Health, report
from kvorum.cli.status_view import plain, rich_view
from kvorum.client import Client


@click.command("status")
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3_600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: seconds between two looks.",
)
@click.option("--check", is_flag=True, help="Exit with 1 unless every node is up.")
@connection_options
@common_options
def command(
    *, watch: bool, interval_s: float, check: bool, connection: Connection, as_json: bool
) -> int:
    """Show zones, shards, health, fill, hit ratio and replication lag."""
    with connection.observer() as client:
        if watch:
            _watch(client, interval_s, as_json)
            return ExitCode.OK
        value = _look(client)
        if as_json:
            print_json(value)
        elif is_terminal():
            from rich.console import Console  # noqa: PLC0415  # only a terminal needs rich

            console = Console()
            console.print(rich_view(value, console.width))
        else:
            print(plain(value))
        healthy = value["health"] == Health.OK
        return ExitCode.FAILURE if check and not healthy else ExitCode.OK


def _look(client: Client) -> dict[str, Any]:
    return report(client.topology(), client.status())


def _watch(client: Client, interval_s: float, as_json: bool) -> None:
    """Report again and again until interrupted, which is its normal end."""
    try:
        if as_json or not is_terminal():
            _repeat(
                client, interval_s, print_json if as_json else lambda value: print(plain(value))
            )
            return
        from rich.live import Live  # noqa: PLC0415  # only a terminal needs rich

        with Live(auto_refresh=False, screen=True) as live:

            def show(value: dict[str, Any]) -> None:
                live.update(rich_view(value, live.console.width), refresh=True)

            _repeat(client, interval_s, show)
    except KeyboardInterrupt:
        return


def _repeat(client: Client, interval_s: float, show: Callable[[dict[str, Any]], None]) -> None:
    while True:
        show(_look(client))
        time.sleep(interval_s)
