"""`kvorum demo`: a real model, two workers and a three-zone cluster that loses a zone."""

from kvorum.cli.demo.command import command
from kvorum.cli.demo.play import DemoOptions, run_demo
from kvorum.cli.demo.report import DemoReport

__all__ = ["DemoOptions", "DemoReport", "command", "run_demo"]
