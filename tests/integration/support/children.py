"""Test code in a process of its own: started, spoken with over pipes, and always ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.integration.support.settling import DEADLINE_S

ROOT: Final = Path(__file__).parents[3]
_CHILD_S: Final = 60.0


@contextmanager
def child(
    module: str, task: object, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a module of this package with `task` as its only argument, JSON; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.integration.support.{module}", json.dumps(task)],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def answer(process: subprocess.Popen[str]) -> Any:  # any JSON value
    """Return the JSON that a child prints before it ends."""
    output, _ = process.communicate(timeout=_CHILD_S)
    if process.returncode:
        raise AssertionError(f"the child ended with {process.returncode}: {output}")
    return json.loads(output)
