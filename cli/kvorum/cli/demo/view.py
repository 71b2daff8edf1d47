"""The report for people: a rich table on a terminal, aligned text elsewhere."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvorum.cli.demo.report import Criterion, DemoReport, Row

_COLUMNS: Final = (
    "#",
    "worker",
    "prompt tokens",
    "cached tokens",
    "TTFT plain",
    "TTFT cached",
    "ratio",
    "identical",
    "question",
)
_TEXT_COLUMNS: Final = frozenset({"worker", "identical", "question"})
_VERDICT: Final = {True: "ok", False: "FAILED", None: "not judged"}
_STYLE: Final = {True: "green", False: "bold red", None: "yellow"}


def show(report: DemoReport, console: Console) -> None:
    """Write tables, summary and verdict to `console`."""
    _show_rows(report, console)
    console.print()
    for name, text in facts(report).items():
        console.print(Text(f"{name:<18}{text}"))
    console.print()
    _show_criteria(report, console)
    console.print()
    console.print(_verdict(report))


def facts(report: DemoReport) -> dict[str, str]:
    """Return the summary: a line for each name."""
    plain, cached = _seconds(report.ttft_plain_p50_s), _seconds(report.ttft_cached_p50_s)
    sent = report.bytes_by_zone.items()
    hits, asked = report.hits_after_zone_kill, len(report.rows_after_zone_kill)
    found = {
        "model": f"{report.model}, blocks of {report.block_tokens} tokens",
        "token hit ratio": f"{report.hit_ratio:.1%} of the questions after the first",
        "first token, p50": f"{plain} plain, {cached} cached: {report.ttft_ratio_p50:.1f} x sooner",
        "KV read": ", ".join(f"zone {zone} {size / 1e6:.1f} MB" for zone, size in sent) or "none",
        "killed": f"zone {report.zone_killed}: {', '.join(report.processes_killed)}",
        "hits after that": f"{hits} of {asked}",
        "lookup budget": f"{report.lookup_budget_s * 1000:.0f} ms, not the default 5 ms: all of "
        "this shares one machine, and a prefill costs far more",
    }
    if report.random_weights:
        found["note"] = (
            "RANDOM weights: the answers mean nothing, and the prefill is too short for a cache "
            "to matter; only identity and hits are judged"
        )
    return found


def _show_rows(report: DemoReport, console: Console) -> None:
    table = _table(console)
    for name in _COLUMNS:
        last = name == _COLUMNS[-1]
        table.add_column(
            name,
            justify="left" if name in _TEXT_COLUMNS else "right",
            no_wrap=not last or not console.is_terminal,
        )
    killed = False
    for row in report.rows:
        if row.after_zone_kill and not killed:
            killed = True
            table.add_section()
            table.add_row("", "", "", "", "", "", "", "", f"(zone {report.zone_killed} killed)")
        table.add_row(*_cells(row), style=None if row.identical else "bold red")
    console.print(table, crop=False, overflow="ignore")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.number),
        row.worker,
        str(row.prompt_tokens),
        str(row.cached_tokens),
        _seconds(row.ttft_plain_s),
        _seconds(row.ttft_cached_s),
        f"{row.ttft_ratio:.1f}",
        "yes" if row.identical else "NO",
        row.question,
    )


def _show_criteria(report: DemoReport, console: Console) -> None:
    table = _table(console)
    for name in ("criterion", "limit", "measured", "verdict"):
        table.add_column(name, no_wrap=True)
    for criterion in report.criteria:
        table.add_row(criterion.name, criterion.limit, criterion.measured, _mark(criterion))
    console.print(table, crop=False, overflow="ignore")


def _mark(criterion: Criterion) -> Text:
    return Text(_VERDICT[criterion.passed], style=_STYLE[criterion.passed])


def _verdict(report: DemoReport) -> Text:
    if report.passed:
        return Text(f"PASSED in {report.seconds:.0f} s", style="bold green")
    failed = ", ".join(item.name for item in report.criteria if item.passed is False)
    return Text(f"FAILED: {failed}", style="bold red")


def _table(console: Console) -> Table:
    return Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms"
