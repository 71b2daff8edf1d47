"""A cache node: the pure engine, and around it what receives, sends, waits and remembers time."""

from kvorum.node.config import NodeConfig
from kvorum.node.main import run
from kvorum.node.server import Node
from kvorum.node.settings import load_config, parse_size

__all__ = ["Node", "NodeConfig", "load_config", "parse_size", "run"]
