"""Entry of the `kvorum` command: finds the command, runs it, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from kvorum.cli.exits import ExitCode
from kvorum.cli.output import report

# Loaded when used: a node must not carry the demo's tensors, nor `version` a gRPC stack.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "up": ("kvorum.cli.up", "Start a cluster on this machine, one process a node"),
    "node": ("kvorum.cli.node", "Run one cache node"),
    "status": ("kvorum.cli.status", "Show zones, shards, health, fill and hit ratio"),
    "demo": ("kvorum.cli.demo", "Serve a real model's KV from a three-zone cluster"),
    "put": ("kvorum.cli.put", "Store a file under a name or a token list"),
    "get": ("kvorum.cli.get", "Read a file back, verified"),
    "lookup": ("kvorum.cli.lookup", "Say what is stored under a name or a token list"),
    "version": ("kvorum.cli.version", "Show versions of Kvorum and what it runs on"),
}
"""Every command: the module that has it as `command`, and its line in the help."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # as click
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # as click
        """Import the command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command = importlib.import_module(module).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.command is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # as click
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Kvorum: a distributed KV-tensor cache for LLM inference.

    Every command takes --json. Exit codes: 0 done, 1 failed, 2 bad usage or input, 3 not found,
    4 cluster unavailable, 130 interrupted.
    """


def run(args: Sequence[str]) -> int:
    """Run the command line `args`, without the program's name, and return the exit status."""
    own = args[: args.index("--")] if "--" in args else args
    as_json, debug = "--json" in own, "--debug" in own
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        level=logging.DEBUG if debug else logging.ERROR,
    )
    try:
        # A command returns nothing, or the exit status when it is not the usual one. Click's own
        # `main` would write to stderr on Ctrl-C.
        with group.make_context("kvorum", list(args)) as context:
            status = group.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except (KeyboardInterrupt, click.Abort):
        print("kvorum: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader went away, as `head` does. Nothing more can be said on stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except Exception as error:  # the edge: whatever it is, it becomes one line and a status
        if debug:
            raise
        return report(error, as_json=as_json)
    return status if isinstance(status, int) else ExitCode.OK


def main() -> NoReturn:
    """Entry point of the installed program."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
