"""The pure engine of a cache node; see `engine.Engine` and the events it handles."""

from kvorum.node.engine.counters import EngineStatus, NamespaceUsage
from kvorum.node.engine.engine import Engine
from kvorum.node.engine.settings import EngineSettings

__all__ = ["Engine", "EngineSettings", "EngineStatus", "NamespaceUsage"]
