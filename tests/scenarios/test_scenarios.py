"""Behaviour worth remembering, as scripts with their full output.

Goal: what the engine answers and asks for in the situations that matter reads as a story, and
changes only on purpose. Method: every `*.txt` here is replayed command by command; what it prints
must equal the file. `pytest tests/scenarios --rewrite` writes the files anew.
"""

from pathlib import Path

import pytest

from tests.scenarios.commands import Commands
from tests.scenarios.script import replay

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_scenario(script: Path, request: pytest.FixtureRequest) -> None:
    text = script.read_text()
    played = replay(text, Commands().run)
    if request.config.getoption("--rewrite", default=False):
        script.write_text(played)
    else:
        assert played == text
    assert "BYTES WRONG" not in played


def test_there_are_scenarios() -> None:
    assert len(SCRIPTS) >= 12
