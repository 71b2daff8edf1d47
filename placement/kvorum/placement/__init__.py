"""Where blocks live: slots, members, the cluster file, and plans to move slots. Pure."""

from kvorum.core.keys import SECRET_BYTES
from kvorum.placement.clusterfile import DEFAULT_TENANT, ClusterFile
from kvorum.placement.plan import Move, apply, plan
from kvorum.placement.slots import SlotMap, SlotRun
from kvorum.placement.tenancy import NamespaceSpec, Tenant
from kvorum.placement.topology import ClusterMap, Member, split_address

__all__ = [
    "DEFAULT_TENANT",
    "SECRET_BYTES",
    "ClusterFile",
    "ClusterMap",
    "Member",
    "Move",
    "NamespaceSpec",
    "SlotMap",
    "SlotRun",
    "Tenant",
    "apply",
    "plan",
    "split_address",
]
