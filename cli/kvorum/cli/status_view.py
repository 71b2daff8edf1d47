"""How `kvorum status` looks: tables in colour on a terminal, the same as plain text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kvorum.cli.sizes import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES: Final = {
    "up": "green",
    "ok": "green",
    "draining": "yellow",
    "degraded": "yellow",
    "down": "bold red",
}
_DISPENSABLE: Final = ("address", "arena", "memory", "shard", "up for", "blocks")
"""Columns that go, in this order, where a terminal is too narrow; `--json` has them all."""
_PADDING: Final = 3
_LEFT: Final = frozenset({"node", "zone", "address", "state", "namespace", "behind"})


@dataclass(frozen=True, slots=True)
class View:
    """A table of text: a title, column names, and rows."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    @property
    def widths(self) -> list[int]:
        """Characters that each column takes."""
        cells = [self.columns, *self.rows]
        return [max(len(row[at]) for row in cells) for at in range(len(self.columns))]

    def without(self, column: str) -> View:
        """Return the table without one of its columns."""
        at = self.columns.index(column)
        rows = [row[:at] + row[at + 1 :] for row in self.rows]
        return View(self.title, self.columns[:at] + self.columns[at + 1 :], rows)

    def fitted(self, width: int) -> View:
        """Return the table without the columns that must go to fit into `width` characters."""
        view = self
        for column in _DISPENSABLE:
            if sum(view.widths) + _PADDING * len(view.columns) + 1 <= width:
                break
            if column in view.columns:
                view = view.without(column)
        return view


def headline(report: dict[str, Any]) -> str:
    """Return the cluster in one line, but for its health."""
    total = report["total"]
    return (
        f"cluster {report['cluster']}, epoch {report['epoch']}: "
        f"{total['nodes_up']} of {total['nodes']} nodes up in {len(report['zones'])} zones and "
        f"{len(report['shards'])} shards, hit ratio {_percent(total['hit_ratio'])}"
    )


def views(report: dict[str, Any]) -> list[View]:
    """Return the tables of a report; one that would be empty is left out."""
    nodes = View(
        "Nodes",
        (
            *("node", "zone", "shard", "address", "state", "up for", "fill", "arena", "blocks"),
            *("hit ratio", "memory", "behind"),
        ),
        [_node_row(node) for node in report["nodes"]],
    )
    shards = View(
        "Shards",
        ("shard", "slots", "up", "blocks", "used", "hit ratio"),
        [
            (str(shard["shard"]), str(shard["slots"]), *_sum_cells(shard))
            for shard in report["shards"]
        ],
    )
    zones = View(
        "Zones",
        ("zone", "up", "blocks", "used", "hit ratio"),
        [(zone["zone"], *_sum_cells(zone)) for zone in report["zones"]],
    )
    namespaces = View(
        "Namespaces",
        ("namespace", "blocks", "used", "hit ratio"),
        [
            (
                use["name"],
                str(use["blocks"]),
                format_size(use["used_bytes"]),
                _percent(use["hit_ratio"]),
            )
            for use in report["namespaces"]
        ],
    )
    return [view for view in (nodes, zones, shards, namespaces) if view.rows]


def _sum_cells(sums: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{sums['nodes_up']}/{sums['nodes']}",
        str(sums["blocks"]),
        format_size(sums["used_bytes"]),
        _percent(sums["hit_ratio"]),
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
        _lag(node["replication"]),
    )


def _lag(peers: Sequence[dict[str, Any]]) -> str:
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
    """Return the report as plain text in aligned columns."""
    lines = [f"{headline(report)}, health {report['health']}"]
    for view in views(report):
        lines.append("")
        for row in (view.columns, *view.rows):
            padded = [
                cell.ljust(width) if column in _LEFT else cell.rjust(width)
                for cell, width, column in zip(row, view.widths, view.columns, strict=True)
            ]
            lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def rich_view(report: dict[str, Any], width: int) -> RenderableType:
    """Return the report as rich renders it on a terminal of `width` characters."""
    from rich import box  # noqa: PLC0415  # only a terminal needs rich
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    health = report["health"]
    title = Text(f"{headline(report)}, health ")
    title.append(health, style=_STYLES[health])
    parts: list[RenderableType] = [title]
    for view in (whole.fitted(width) for whole in views(report)):
        table = Table(
            title=view.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
        )
        for column in view.columns:
            table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
        for row in view.rows:
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        parts.append(table)
    return Group(*parts)
