"""`kvorum demo`: plays, shows the report, and fails if a criterion does."""

from __future__ import annotations

import sys

import click

from kvorum.cli.demo import model
from kvorum.cli.demo.view import plain_view, rich_view
from kvorum.cli.exits import ExitCode
from kvorum.cli.options import common_options
from kvorum.cli.output import is_terminal, print_json
from kvorum.core.limits import CALL_S_MAX


@click.command("demo")
@click.option(
    "--model",
    "model_name",
    type=click.Choice(model.MODELS),
    default=model.REAL,
    show_default=True,
    help="The real model, or a tiny one with random weights where it cannot be installed.",
)
@click.option("--short", is_flag=True, help="Fewer questions and shorter answers.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Decides whether plain or cached generation comes first, question by question.",
)
@click.option(
    "--lookup-budget",
    "lookup_budget_s",
    type=click.FloatRange(0.001, CALL_S_MAX),
    default=0.1,
    show_default=True,
    metavar="SECONDS",
    help="What a lookup may cost a question; a client's own default is 0.005.",
)
@common_options
def command(model_name: str, short: bool, seed: int, lookup_budget_s: float, as_json: bool) -> int:
    """Serve a real model's KV from a three-zone cluster, and kill a zone.

    Two worker processes answer the questions of a customer-service script. Every question is
    generated plainly and with the cache; the output must be the same. Exits with 1 if it is not,
    or if a criterion fails.
    """
    from kvorum.cli.demo.play import DemoOptions, run_demo  # starts processes

    options = DemoOptions(model=model_name, short=short, seed=seed, lookup_budget_s=lookup_budget_s)
    report = run_demo(options, progress=lambda line: print(line, file=sys.stderr, flush=True))
    if as_json:
        print_json(report.to_json())
    elif is_terminal():
        from rich.console import Console  # only a terminal needs rich

        console = Console(highlight=False)
        console.print(rich_view(report, console.width))
    else:
        print(plain_view(report))
    return ExitCode.OK if report.passed else ExitCode.FAILURE
