"""Goal: the benchmarks run and say what they promise to; what they measure is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.commands import environment

ROOT = Path(__file__).parents[3]


def bench(module: str, *flags: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{module}", "--json", *flags],
        capture_output=True,
        timeout=110,
        check=False,
        cwd=ROOT,
        env=environment(),
    )
    assert done.returncode in {0, 1}, done.stderr.decode()
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_memory_says_how_much_a_node_took() -> None:
    value = bench("memory", "--memory", "16MiB", "--times", "3")
    assert value["written_bytes"] >= 48 << 20
    assert value["resident_bytes_max"] >= value["resident_bytes_at_start"] > value["arena_bytes"]
    assert value["holds"] == (value["resident_bytes_max"] <= value["bound_bytes"])


@pytest.mark.slow
def test_fetch_compares_every_case() -> None:
    value = bench("fetch", "--quick", "--rounds", "1")
    cases = {(row["block_bytes"], row["mode"], row["operation"]) for row in value["rows"]}
    assert len(cases) == len(value["rows"]) == 4 * 2 * 3
    for row in value["rows"]:
        rates = row["gb_per_s"]
        assert min(rates["kvorum"], rates["raw socket"]) > 0
        assert row["ratio_to_raw"] == rates["kvorum"] / rates["raw socket"]
    assert set(value["resident_bytes"]) >= {"kvorum", "raw socket"}
    assert isinstance(value["verdict"]["holds"], bool)
