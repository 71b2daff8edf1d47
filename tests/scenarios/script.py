"""The text format of scenarios.

    # A comment, kept as it is.
    > command argument key=value
    what the command printed, line by line

A line that begins with "> " is a command; the lines after it, up to an empty line, a comment or
the next command, are its expected output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Command:
    """A name, its arguments in order, and its options by name; a bare word is an argument."""

    name: str
    arguments: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, line: str) -> Command:
        """Read one command without its prompt; `key=value` is an option."""
        name, *rest = line.split()
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        return cls(name, tuple(word for word in rest if "=" not in word), options)

    def number(self, option: str, default: int = 0) -> int:
        """Return an option as a whole number."""
        return int(self.options.get(option, default))


def replay(text: str, run: Callable[[Command], list[str]]) -> str:
    """Run every command of a scenario and return its text with what they print now."""
    lines: list[str] = []
    skipping = False
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *run(Command.parse(line[2:]))]
            skipping = True
        elif not line or line.startswith("#"):
            lines.append(line)
            skipping = False
        elif not skipping:
            raise ValueError(f"neither a command nor the output of one: {line!r}")
    return "\n".join(lines) + "\n"
