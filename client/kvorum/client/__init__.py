"""The library that inference workers use: look a prompt up, fetch its KV, store what is new."""

from kvorum.client.client import AsyncClient
from kvorum.client.nodes import (
    NamespaceUse,
    NodeInfo,
    NodeState,
    NodeStatus,
    PeerLag,
    Topology,
)
from kvorum.client.policy import NamespacePolicy
from kvorum.client.results import (
    BlockStat,
    Fetched,
    Hit,
    LocatedBlock,
    MissReason,
    NodeLease,
    StoredBlock,
    StoreOutcome,
    StoreResult,
)
from kvorum.client.security import Tls
from kvorum.client.settings import ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.sync import Client
from kvorum.core.fingerprint import Fingerprint

__all__ = [
    "AsyncClient",
    "BlockStat",
    "Client",
    "ClientSettings",
    "ClientStats",
    "Fetched",
    "Fingerprint",
    "Hit",
    "LocatedBlock",
    "MissReason",
    "NamespacePolicy",
    "NamespaceUse",
    "NodeInfo",
    "NodeLease",
    "NodeState",
    "NodeStatus",
    "PeerLag",
    "StoreOutcome",
    "StoreResult",
    "StoredBlock",
    "Tls",
    "Topology",
]
