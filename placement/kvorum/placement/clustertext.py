"""The cluster file's text: tables to values that check themselves, and back."""

from __future__ import annotations

from dataclasses import asdict

from kvorum.core.fingerprint import Fingerprint
from kvorum.placement.slots import SlotMap, SlotRun
from kvorum.placement.tables import Table, inline, pairs
from kvorum.placement.tenancy import NamespaceSpec, Tenant
from kvorum.placement.topology import ClusterMap, Member


def read_map(top: Table) -> ClusterMap:
    """Take `cluster` and `members`; without `cluster.slots`, all shards share evenly.

    Raises:
        InvalidArgumentError: a key is unknown, missing or of another type, or no valid map results.
    """
    cluster = top.table("cluster")
    members = tuple(_read_member(table) for table in top.tables("members") or ())
    runs = cluster.tables("slots")
    slots = (
        SlotMap.even(1 + max((member.shard for member in members), default=0))
        if runs is None
        else SlotMap.from_runs(_read_run(table) for table in runs)
    )
    name, epoch = cluster.text("name"), cluster.integer("epoch")
    cluster.end()
    return ClusterMap(name, epoch, members, slots)


def read_tenants(top: Table) -> tuple[Tenant, ...]:
    """Take `tenants`.

    Raises:
        InvalidArgumentError: a key is unknown, missing or invalid.
    """
    return tuple(_read_tenant(table) for table in top.tables("tenants") or ())


def read_namespaces(top: Table, replicas: int) -> tuple[NamespaceSpec, ...]:
    """Take `namespaces`; those that do not say have `replicas` replicas.

    Raises:
        InvalidArgumentError: a key is unknown, missing or invalid.
    """
    return tuple(_read_namespace(table, replicas) for table in top.tables("namespaces") or ())


def _read_run(table: Table) -> SlotRun:
    run = SlotRun(table.integer("count"), table.integer("shard"))
    table.end()
    return run


def _read_member(table: Table) -> Member:
    name, zone = table.text("name"), table.text("zone")
    shard, address = table.integer("shard"), table.text("address")
    table.end()
    with table.located():
        return Member(name, zone, shard, address)


def _read_tenant(table: Table) -> Tenant:
    name, token_sha256 = table.text("name"), table.text("token_sha256")
    table.end()
    with table.located():
        return Tenant(name, token_sha256)


def _read_namespace(table: Table, replicas: int) -> NamespaceSpec:
    fingerprint = table.table("fingerprint")
    with fingerprint.located():
        made_by = Fingerprint.from_mapping(fingerprint.rest())
    tenant, name = table.text("tenant"), table.text("name")
    policy = {
        "replicas": table.integer("replicas", replicas),
        "ttl_ms": table.integer("ttl_ms", 0),
        "idle_ttl_ms": table.integer("idle_ttl_ms", 0),
        "quota_bytes": table.integer("quota_bytes", 0),
    }
    table.end()
    with table.located():
        return NamespaceSpec(tenant, name, made_by, **policy)


def write_map(cluster_map: ClusterMap) -> str:
    """Return the table `cluster`; the members follow the secrets."""
    head = pairs({"name": cluster_map.cluster, "epoch": cluster_map.epoch})
    runs = "".join(f"  {inline(asdict(run))},\n" for run in cluster_map.slots.runs())
    return f"[cluster]\n{head}slots = [\n{runs}]\n"


def write_rows(name: str, rows: tuple[Member, ...] | tuple[Tenant, ...]) -> list[str]:
    """Return one table of the array `name` for each row."""
    return [f"[[{name}]]\n{pairs(asdict(row))}" for row in rows]


def write_namespaces(specs: tuple[NamespaceSpec, ...]) -> list[str]:
    """Return the array of tables `namespaces`."""
    return [
        f"[[namespaces]]\n{pairs({'tenant': spec.tenant, 'name': spec.name, **spec.policy()})}"
        f"[namespaces.fingerprint]\n{pairs(asdict(spec.fingerprint))}"
        for spec in specs
    ]
