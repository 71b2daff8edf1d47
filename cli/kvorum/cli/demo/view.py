"""How the demo's report looks to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvorum.cli.demo.report import DemoReport, Row
from kvorum.cli.tables import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

_VERDICT: Final = {True: "ok", False: "FAILED", None: "not judged"}
_STYLES: Final = {
    "yes": "green",
    "NO": "bold red",
    "ok": "green",
    "FAILED": "bold red",
    "not judged": "yellow",
}
_LEFT: Final = frozenset({"worker", "zones", "identical", "question", "criterion", "verdict"})
_RANDOM_NOTE: Final = (
    "RANDOM weights: the answers mean nothing, and the prefill is too short for a cache to matter; "
    "times are not judged"
)
_REAL_NOTE: Final = (
    "a model this small is often wrong; what counts is that it says the same with the cache"
)
_DISPENSABLE: Final = ("question", "worker")
"""Columns that go, in this order, where a terminal is too narrow."""


def plain_view(report: DemoReport) -> str:
    """Return the report as text without escape codes."""
    parts = [
        questions(report).plain(),
        "\n".join(f"{name:<18}{text}" for name, text in facts(report).items()),
        criteria(report).plain(),
        verdict(report),
    ]
    return "\n\n".join(parts)


def rich_view(report: DemoReport, width: int) -> RenderableType:
    """Return the report as rich renders it within `width` columns."""
    from rich.console import Group  # only a terminal needs rich
    from rich.text import Text

    lines = [Text.assemble((f"{name:<18}", "bold"), text) for name, text in facts(report).items()]
    return Group(
        questions(report).fitted(width, _DISPENSABLE).rich(_STYLES),
        *lines,
        Text(),
        criteria(report).rich(_STYLES),
        Text(verdict(report), style="bold green" if report.passed else "bold red"),
    )


def questions(report: DemoReport) -> Table:
    """Return a table with a row for each question."""
    columns = (
        *("#", "worker", "zones", "prompt tokens", "cached tokens"),
        *("TTFT plain", "TTFT cached", "ratio", "identical", "question"),
    )
    return Table("Questions", columns, [_cells(row, report) for row in report.rows], _LEFT)


def criteria(report: DemoReport) -> Table:
    """Return a table of what had to hold."""
    rows: list[tuple[str, ...]] = [
        (item.name, item.limit, item.measured, _VERDICT[item.passed]) for item in report.criteria
    ]
    return Table("Criteria", ("criterion", "limit", "measured", "verdict"), rows, _LEFT)


def facts(report: DemoReport) -> dict[str, str]:
    """Return the summary: a line for each name."""
    plain, cached = _ms(report.ttft_plain_p50_s), _ms(report.ttft_cached_p50_s)
    sent = report.bytes_by_zone.items()
    hits, asked = report.hits_after_zone_kill, len(report.rows_after_zone_kill)
    found = {
        "model": f"{report.model}, blocks of {report.block_tokens} tokens",
        "token hit ratio": f"{report.hit_ratio:.1%} of the questions after the first",
        "first token, p50": f"{plain} plain, {cached} cached: {report.ttft_ratio_p50:.1f} x sooner",
        "KV read": ", ".join(f"zone {zone} {size / 1e6:.1f} MB" for zone, size in sent) or "none",
        "killed": f"zone {report.zone_killed}: {', '.join(report.processes_killed)}",
        "hits after that": f"{hits} of {asked}",
        "lookup budget": f"{_ms(report.lookup_budget_s)}, not the default 5 ms: all of this "
        "shares one machine, and a prefill costs far more",
    }
    found["note"] = _RANDOM_NOTE if report.random_weights else _REAL_NOTE
    return found


def verdict(report: DemoReport) -> str:
    """Return the last line."""
    if report.passed:
        return f"PASSED in {report.seconds:.0f} s"
    failed = (item.name for item in report.criteria if item.passed is False)
    return "FAILED: " + ", ".join(failed)


def _cells(row: Row, report: DemoReport) -> tuple[str, ...]:
    return (
        str(row.number),
        row.worker,
        f"{report.zone_killed} dead" if row.after_zone_kill else "all",
        str(row.prompt_tokens),
        str(row.cached_tokens),
        _ms(row.ttft_plain_s),
        _ms(row.ttft_cached_s),
        f"{row.ttft_ratio:.1f}",
        "yes" if row.identical else "NO",
        row.question,
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
