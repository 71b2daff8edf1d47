"""Goal: the demo plays to its end, with a real cluster, two real workers and a zone that dies.

Method: the command as a user starts it, with the tiny model; times are shown, not judged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PLAY_S = 280


def demo(cache: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command and return its end; nothing of it may be left then."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    ended = subprocess.run(
        [sys.executable, "-m", "kvorum.cli.main", "demo", "--model", "tiny", *flags],
        env={**os.environ, "KVORUM_CACHE_DIR": str(cache), **environment},
        capture_output=True,
        text=True,
        timeout=PLAY_S,
        check=False,
    )
    left = {process.pid for process in psutil.Process().children(recursive=True)} - before
    assert not left
    return ended


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    ended = demo(tmp_path_factory.mktemp("models"), "--short", "--json", "--lookup-budget", "10")
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def test_everything_that_does_not_depend_on_time_holds(played: dict[str, Any]) -> None:
    assert played["passed"] is True
    assert played["outputs_identical"] is True
    assert played["hit_ratio"] >= 0.90
    assert played["random_weights"] is True
    judged = {item["name"]: item["passed"] for item in played["criteria"]}
    assert list(judged.values()) == [True, True, None, True, None]


def test_the_first_question_is_computed_and_all_others_are_served(played: dict[str, Any]) -> None:
    first, *others = played["questions"]
    assert first["cached_tokens"] == 0
    assert first["reason"] == "NEVER_STORED"
    shared = {row["cached_tokens"] for row in others}
    assert len(shared) == 1
    assert shared.pop() % played["block_tokens"] == 0
    assert {row["worker"] for row in played["questions"]} == {"worker-1", "worker-2"}
    assert all(len(row["bytes_by_zone"]) > 0 for row in others)


def test_the_zone_that_served_most_dies_and_another_takes_over(played: dict[str, Any]) -> None:
    killed = played["zone_killed"]
    before = [row for row in played["questions"] if not row["after_zone_kill"]]
    after = [row for row in played["questions"] if row["after_zone_kill"]]
    assert played["processes_killed"] == [f"kvorum-{killed}-0"]
    assert any(killed in row["bytes_by_zone"] for row in before)
    assert played["hits_after_zone_kill"] == played["questions_after_zone_kill"] == len(after) > 0
    assert all(killed not in row["bytes_by_zone"] for row in after)


def test_a_model_that_cannot_be_written_ends_the_demo_with_a_reason(tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("not a folder")
    ended = demo(blocked, "--short", "--json")
    assert ended.returncode == 1
    assert "making the model ready failed" in json.loads(ended.stdout)["error"]["message"]
