"""The `kvorum` command: builds objects from flags, owns logging, signals and exit codes."""

from kvorum.cli.local_cluster import LocalCluster
from kvorum.cli.local_settings import LocalSettings

__all__ = ["LocalCluster", "LocalSettings"]
