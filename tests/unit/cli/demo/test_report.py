"""Goal: the report's figures are right, and each criterion fails alone when it should.

Method: reports of made-up rows in which one thing at a time is wrong.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from kvorum.cli.demo.report import DemoReport, Row
from kvorum.cli.demo.view import facts, plain_view, rich_view


def row(number: int, **changes: Any) -> Row:
    good = Row(
        number=number,
        question=f"question {number}?",
        worker=f"worker-{2 - number % 2}",
        after_zone_kill=number > 4,
        prompt_tokens=1000,
        cached_tokens=0 if number == 1 else 960,
        ttft_plain_s=1.0,
        ttft_cached_s=1.02 if number == 1 else 0.1,
        lookup_s=0.002,
        fetch_s=0.03,
        total_plain_s=2.0,
        total_cached_s=1.1,
        identical=True,
        answer="an answer",
        bytes_by_zone={} if number == 1 else {"b": 10, "a": number},
        reason="NEVER_STORED" if number == 1 else None,
    )
    return replace(good, **changes)


def report(rows: list[Row] | None = None, **changes: Any) -> DemoReport:
    values: dict[str, Any] = {
        "model": "a model",
        "random_weights": False,
        "short": False,
        "block_tokens": 128,
        "max_new_tokens": 24,
        "lookup_budget_s": 0.05,
        "zone_killed": "b",
        "processes_killed": ("kvorum-b-0",),
        "rows": tuple(rows or [row(number) for number in range(1, 7)]),
        "seconds": 61.4,
    }
    return DemoReport(**{**values, **changes})


def failed(judged: DemoReport) -> list[int]:
    return [at for at, item in enumerate(judged.criteria) if item.passed is False]


def test_a_good_play_passes_with_the_right_figures() -> None:
    good = report()
    assert good.passed
    assert [item.passed for item in good.criteria] == [True] * 5
    assert good.hit_ratio == 0.96  # the first question doesn't count
    assert good.ttft_ratio_p50 == pytest.approx(10.0)
    assert good.hits_after_zone_kill == 2
    assert good.bytes_by_zone == {"a": 2 + 3 + 4 + 5 + 6, "b": 50}


def test_each_criterion_fails_alone() -> None:
    rows = [row(number) for number in range(1, 7)]
    assert failed(report([*rows[:2], row(3, identical=False), *rows[3:]])) == [0]
    assert failed(report([row(number, cached_tokens=899) for number in range(1, 7)])) == [1]
    slow = [row(number, ttft_cached_s=0.21) for number in range(1, 7)]
    assert failed(report(slow)) == [2]
    assert failed(report([*rows[:5], row(6, cached_tokens=0, prompt_tokens=10)])) == [3]
    assert failed(report([*rows[:5], row(6, ttft_cached_s=1.101)])) == [4]
    assert failed(report([*rows[:5], row(6, total_cached_s=2.101)])) == [4]
    assert not failed(report([*rows[:5], row(6, total_cached_s=2.099)]))
    assert failed(report(rows[:4])) == [3]


def test_random_weights_say_nothing_about_time() -> None:
    slow = [row(number, ttft_cached_s=9.0) for number in range(1, 7)]
    judged = report(slow, random_weights=True)
    assert judged.passed
    assert [item.passed for item in judged.criteria] == [True, True, None, True, None]
    assert "RANDOM" in facts(judged)["note"]
    assert not report(slow).passed


def test_json_has_the_keys_that_scripts_read() -> None:
    value = json.loads(json.dumps(report().to_json()))
    assert value["hit_ratio"] == 0.96
    assert value["ttft_ratio_p50"] == 10.0
    assert value["outputs_identical"] is True
    assert value["zone_killed"] == "b"
    assert value["hits_after_zone_kill"] == 2
    assert value["questions_after_zone_kill"] == 2
    assert value["passed"] is True
    assert [item["number"] for item in value["questions"]] == [1, 2, 3, 4, 5, 6]
    assert value["questions"][1]["bytes_by_zone"] == {"b": 10, "a": 2}
    assert value["questions"][0]["ttft_ratio"] == 0.98
    assert len(value["criteria"]) == 5


def test_text_shows_every_question_and_the_verdict() -> None:
    text = plain_view(report())
    lines = text.splitlines()
    assert "\x1b" not in text
    assert sum("question " in line and "?" in line for line in lines) == 6
    assert sum("b dead" in line for line in lines) == 2
    assert lines[-1] == "PASSED in 61 s"
    bad = plain_view(report([row(number, identical=number != 3) for number in range(1, 7)]))
    assert bad.splitlines()[-1] == "FAILED: outputs identical to plain generation"
    assert sum(" NO " in line for line in bad.splitlines()) == 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_terminal_gets_tables_that_fit(width: int) -> None:
    console = Console(width=width, force_terminal=True, record=True, file=io.StringIO())
    console.print(rich_view(report(), width))
    text = console.export_text()
    assert "PASSED" in text
    assert ("question 3?" in text) is (width == 200)
