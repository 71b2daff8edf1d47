"""`kvorum node`: one cache node, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import click

from kvorum.cli.exits import FileError
from kvorum.cli.node_flags import config_options
from kvorum.cli.options import common_options
from kvorum.cli.output import print_result
from kvorum.cli.watch import start_watch
from kvorum.node.main import run
from kvorum.node.settings import load_config

_LEVELS: Final = ("debug", "info", "warning", "error")
_FILE: Final = click.Path(path_type=Path)


@click.command("node")
@click.option(
    "--cluster",
    type=_FILE,
    envvar="KVORUM_CLUSTER",
    required=True,
    metavar="FILE",
    help="The cluster file that all members share. [KVORUM_CLUSTER]",
)
@click.option(
    "--settings",
    type=_FILE,
    envvar="KVORUM_SETTINGS",
    metavar="FILE",
    help="A TOML file of the settings below. [KVORUM_SETTINGS]",
)
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS),
    envvar="KVORUM_LOG_LEVEL",
    default="info",
    show_default=True,
    help="What to log on stderr. [KVORUM_LOG_LEVEL]",
)
@click.option(
    "--parent-pid", type=int, help="End when this process is no longer the parent of the node."
)
@click.option(
    "--log-bytes-max",
    type=click.IntRange(min=1024),
    help="Keep the log below this size, if stderr is a file opened for reading and appending.",
)
@config_options
@common_options
def command(
    *,
    cluster: Path,
    settings: Path | None,
    log_level: str,
    parent_pid: int | None,
    log_bytes_max: int | None,
    as_json: bool,
    **flags: str | None,
) -> None:
    """Run one cache node until SIGTERM or Ctrl-C, then drain it.

    Prints one line when it serves: "ready NAME ADDRESS".
    """
    start_watch(parent_pid, log_bytes_max)
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger().setLevel(log_level.upper())
    cluster_text = _read(cluster, "--cluster")
    settings_text = _read(settings, "--settings") if settings else ""
    config = load_config(flags, os.environ, settings_text)

    def ready(name: str, address: str) -> None:
        value = {"ready": True, "name": name, "address": address}
        print_result(as_json, value, f"ready {name} {address}")

    run(config, cluster_text, ready=ready)


def _read(path: Path, flag: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", field=flag) from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8: {error}", field=flag) from error
