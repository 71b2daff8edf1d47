"""Goal: the examples do what they say, as a newcomer runs them.

Method: each in a process of its own, against a running node.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvorum.cli.demo import model as demo_model
from kvorum.cli.local_cluster import LocalCluster

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, cluster: LocalCluster, *flags: str) -> str:
    """Return what the example printed."""
    ended = subprocess.run(
        [
            *(sys.executable, "-W", "error", str(EXAMPLES / example)),
            *("--endpoints", ",".join(cluster.endpoints), *flags),
        ],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_raw_numpy(cluster: LocalCluster) -> None:
    lines = run("raw_numpy.py", cluster).splitlines()
    assert lines[0] == "stored 4 blocks, acknowledged by zones a"
    assert lines[1].startswith("found 192 of 300 tokens")
    assert lines[-1] == "every byte is what was stored"


def test_transformers(cluster: LocalCluster, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = demo_model.make_ready(demo_model.TINY, tmp_path).directory
    flags = ("--model", folder, "--patience", "5")
    first = run("transformers_cached_generator.py", cluster, *flags).splitlines()
    second = run("transformers_cached_generator.py", cluster, *flags).splitlines()
    assert first[0].startswith("0 of ")
    shared = first[1].split()[0]
    assert int(shared) % 64 == 0 < int(shared)
    assert [line.split()[0] for line in second] == [shared, shared]
    assert [line.split(":", 1)[1] for line in first] == [line.split(":", 1)[1] for line in second]
