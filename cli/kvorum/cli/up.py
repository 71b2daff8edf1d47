"""`kvorum up`: a cluster on this machine until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from kvorum.cli.exits import ExitCode
from kvorum.cli.local_cluster import LocalCluster
from kvorum.cli.local_settings import DRAIN_S_DEFAULT, LocalSettings
from kvorum.cli.member_process import CancelledError
from kvorum.cli.options import ENDPOINTS_DEFAULT, PORT_DEFAULT, common_options
from kvorum.cli.output import print_json
from kvorum.cli.sizes import format_count, format_size
from kvorum.cli.stop_requests import StopRequests
from kvorum.core.errors import UnavailableError
from kvorum.node.settings import parse_size

_POLL_S: Final = 0.2


@click.command("up")
@click.option("--zones", type=int, default=3, show_default=True, help="Zones.")
@click.option("--shards", type=int, default=1, show_default=True, help="Nodes in each zone.")
@click.option(
    "--memory", default="512MiB", show_default=True, metavar="SIZE", help="Arena of each node."
)
@click.option(
    "--port",
    type=int,
    default=PORT_DEFAULT,
    show_default=True,
    help="Port of the first node, the others follow; 0 draws free ones.",
)
@click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(0, 3_600),
    default=DRAIN_S_DEFAULT,
    show_default=True,
    metavar="SECONDS",
    help="What nodes may take at the end to pass on what their peers lack.",
)
@click.option(
    "--cluster-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the cluster file here and keep it; it holds secrets.",
)
@click.option(
    "--log-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the nodes' logs here and keep them.",
)
@common_options
def command(  # noqa: PLR0913  # click gives each flag as an argument
    *,
    zones: int,
    shards: int,
    memory: str,
    port: int,
    drain_s: float,
    cluster_file: Path | None,
    log_dir: Path | None,
    as_json: bool,
) -> int:
    """Start a cluster on this machine, one process a node, until Ctrl-C or SIGTERM."""
    settings = LocalSettings(
        zones=zones,
        shards=shards,
        memory_bytes=parse_size(memory, "memory"),
        port=port,
        drain_s=drain_s,
        directory=log_dir,
        cluster_file=cluster_file,
    )
    requests = StopRequests()
    cluster = LocalCluster(settings)
    with requests.counted():
        try:
            if sys.stderr.isatty() and not as_json:
                print(f"starting {_shape(settings)}", file=sys.stderr, flush=True)
            cluster.start(requests.first)
            _announce(cluster, as_json)
            _watch(cluster, requests.first)
        except CancelledError:
            pass  # asked to stop before it served: stopped as ever
        finally:
            if requests.first() and not as_json:
                print("stopping; Ctrl-C again to stop at once", file=sys.stderr, flush=True)
            cluster.stop(requests.second)
    return ExitCode.OK


def _watch(cluster: LocalCluster, stopped: Callable[[], bool]) -> None:
    """Wait until asked to stop, and tell of nodes that end.

    Raises:
        UnavailableError: every node has ended.
    """
    lost: set[str] = set()
    while not stopped():
        time.sleep(_POLL_S)
        ended = {
            member.name for member in cluster.members if not cluster.process(member.name).running
        }
        for name in sorted(ended - lost):
            status = cluster.process(name).returncode
            print(f"kvorum: {name} ended with status {status}", file=sys.stderr, flush=True)
        lost = ended
        if len(ended) == len(cluster.members):
            raise UnavailableError("every node has ended")


def _announce(cluster: LocalCluster, as_json: bool) -> None:
    if as_json:
        print_json(_value(cluster))
        return
    endpoints = ",".join(cluster.endpoints)
    settings = cluster.settings
    lines = [
        f"ready: {_shape(settings)}",
        *(
            f"  {member.name}  zone {member.zone}  shard {member.shard}  {member.address}"
            f"  pid {cluster.process(member.name).pid}"
            for member in cluster.members
        ),
        "try, in another terminal:",
        *([] if endpoints == ENDPOINTS_DEFAULT else [f"  export KVORUM_ENDPOINTS={endpoints}"]),
        "  kvorum status",
        "  kvorum put README.md --name readme",
        "  kvorum get readme -o /tmp/readme",
        "Ctrl-C stops the cluster",
    ]
    print("\n".join(lines), flush=True)


def _shape(settings: LocalSettings) -> str:
    return ", ".join(
        (
            format_count(settings.zones, "zone"),
            format_count(settings.shards, "shard"),
            f"{format_size(settings.memory_bytes)} a node",
        )
    )


def _value(cluster: LocalCluster) -> dict[str, Any]:
    kept = cluster.settings.cluster_file
    return {
        "ready": True,
        "endpoints": list(cluster.endpoints),
        "cluster_file": str(kept.absolute()) if kept else None,
        "members": [
            {
                "name": member.name,
                "zone": member.zone,
                "shard": member.shard,
                "address": member.address,
                "pid": cluster.process(member.name).pid,
            }
            for member in cluster.members
        ],
    }
