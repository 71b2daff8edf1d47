"""Goal: no secret of a killed cluster stays on disk, and no living cluster loses its directory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kvorum.cli.scratch import Scratch, sweep

MAKE_AND_WAIT = """
import sys
from kvorum.cli.scratch import Scratch
print(Scratch().path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_the_next_cluster_removes_what_a_killed_one_left() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKE_AND_WAIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        (path / "cluster.toml").write_text("secret")
        assert sweep() == [], "it lives"
        assert path.is_dir()
        process.kill()
        process.wait()
    assert sweep() == [path]
    assert not path.exists()
    assert sweep() == []


def test_it_is_private_and_removes_itself() -> None:
    scratch = Scratch()
    assert scratch.path.stat().st_mode & 0o777 == 0o700
    assert sweep() == [], "it is in use by this process"
    scratch.remove()
    assert not scratch.path.exists()


def test_what_is_not_a_clusters_is_left_alone(temporary: Path) -> None:
    """Directories without a lock, of another name, and links to elsewhere."""
    (temporary / "kvorum-other").mkdir()
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "lock").touch()
    (temporary / "kvorum-link").symlink_to(temporary / "elsewhere")
    (temporary / "kvorum-linked-lock").mkdir()
    (temporary / "kvorum-linked-lock" / "lock").symlink_to(temporary / "elsewhere" / "lock")
    assert sweep() == []
    assert (temporary / "elsewhere" / "lock").exists()
    assert (temporary / "kvorum-other").is_dir()
    assert (temporary / "kvorum-linked-lock").is_dir()
