"""How `kvorum status` looks to a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kvorum.cli.sizes import format_count, format_size
from kvorum.cli.tables import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES: Final = {
    "up": "green",
    "ok": "green",
    "draining": "yellow",
    "degraded": "yellow",
    "down": "bold red",
}
_LEFT: Final = frozenset({"node", "zone", "address", "state", "namespace", "behind"})
_DISPENSABLE: Final = ("address", "arena", "memory", "shard", "up for", "blocks")
"""Columns that go, in this order, where a terminal is too narrow; `--json` has them all."""


def headline(report: dict[str, Any]) -> str:
    """Return the cluster in one line, but for its health."""
    total = report["total"]
    return (
        f"cluster {report['cluster']}, epoch {report['epoch']}: "
        f"{total['nodes_up']} of {total['nodes']} nodes up in "
        f"{format_count(len(report['zones']), 'zone')} and "
        f"{format_count(len(report['shards']), 'shard')}, hit ratio {_percent(total['hit_ratio'])}"
    )


def tables(report: dict[str, Any]) -> list[Table]:
    """Return the tables of a report; one that would be empty is left out."""
    nodes = Table(
        "Nodes",
        (
            *("node", "zone", "shard", "address", "state", "up for", "fill", "arena", "blocks"),
            *("hit ratio", "memory", "behind"),
        ),
        [_node_row(node) for node in report["nodes"]],
        _LEFT,
    )
    zones = Table(
        "Zones",
        ("zone", "up", "blocks", "used", "hit ratio"),
        [(zone["zone"], *_sum_cells(zone)) for zone in report["zones"]],
        _LEFT,
    )
    shards = Table(
        "Shards",
        ("shard", "slots", "up", "blocks", "used", "hit ratio"),
        [(str(item["shard"]), str(item["slots"]), *_sum_cells(item)) for item in report["shards"]],
    )
    namespaces = Table(
        "Namespaces",
        ("namespace", "blocks", "used", "hit ratio"),
        [_namespace_row(use) for use in report["namespaces"]],
        _LEFT,
    )
    return [table for table in (nodes, zones, shards, namespaces) if table.rows]


def _sum_cells(sums: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{sums['nodes_up']}/{sums['nodes']}",
        str(sums["blocks"]),
        format_size(sums["used_bytes"]),
        _percent(sums["hit_ratio"]),
    )


def _namespace_row(use: dict[str, Any]) -> tuple[str, ...]:
    return (
        use["name"],
        str(use["blocks"]),
        format_size(use["used_bytes"]),
        _percent(use["hit_ratio"]),
    )


def _node_row(node: dict[str, Any]) -> tuple[str, ...]:
    head = (node["name"], node["zone"], str(node["shard"]), node["address"], node["state"])
    if node["state"] == "down":
        return (*head, *["-"] * 7)
    return (
        *head,
        _duration(node["uptime_s"]),
        _percent(node["fill"]),
        format_size(node["arena_bytes"]),
        str(node["blocks"]),
        _percent(node["hit_ratio"]),
        format_size(node["resident_bytes"]),
        _behind(node["replication"]),
    )


def _behind(peers: Sequence[dict[str, Any]]) -> str:
    """Return how far the peers are behind this node."""
    if not peers:
        return "no peers"
    cut = sorted(peer["zone"] for peer in peers if not peer["connected"])
    parts = [f"{', '.join(cut)} cut off"] if cut else []
    if any(peer["lag_entries"] for peer in peers):
        size = sum(peer["lag_bytes"] for peer in peers)
        longest = max(peer["lag_s"] for peer in peers)
        parts.append(f"{longest:.1f} s, {format_size(size)}")
    return "; ".join(parts) or "0 s"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min"
    hours = whole // 3_600
    return f"{hours} h" if hours < 48 else f"{hours // 24} d"


def plain(report: dict[str, Any]) -> str:
    """Return the report as plain text."""
    head = f"{headline(report)}, health {report['health']}"
    return "\n\n".join([head, *(table.plain() for table in tables(report))])


def rich_view(report: dict[str, Any], width: int) -> RenderableType:
    """Return the report as rich renders it on a terminal of `width` characters."""
    from rich.console import Group  # noqa: PLC0415  # only a terminal needs rich
    from rich.text import Text  # noqa: PLC0415  # likewise

    health = report["health"]
    title = Text(f"{headline(report)}, health ")
    title.append(health, style=_STYLES[health])
    fitted = (table.fitted(width, _DISPENSABLE) for table in tables(report))
    return Group(title, *(table.rich(_STYLES) for table in fitted))
