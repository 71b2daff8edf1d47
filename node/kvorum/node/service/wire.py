"""Wire: the engine's values as messages, and back. Nothing else knows both."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, KvorumError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.names import check_name
from kvorum.node.engine.events import (
    BlockInfo,
    BlockView,
    Miss,
    NamespaceId,
    NamespaceRecord,
    Outcome,
    Policy,
    WriteReply,
)
from kvorum.node.service.validation import check_range
from kvorum.v1 import cache_pb2, common_pb2, namespace_pb2, replication_pb2, status

MissValue = common_pb2.MissReason.ValueType

_OUTCOMES: Final = {
    Outcome.STORED: cache_pb2.PUT_OUTCOME_STORED,
    Outcome.ALREADY_STORED: cache_pb2.PUT_OUTCOME_ALREADY_STORED,
    Outcome.STAGED: cache_pb2.PUT_OUTCOME_STAGED,
}
_REVISION_MAX: Final = 2**63 - 1


def miss_value(miss: Miss | None) -> common_pb2.MissReason.ValueType:
    """Return a miss reason as it travels; unspecified for None."""
    return MissValue(0 if miss is None else miss.value)


def block_state(view: BlockView, shard: int) -> cache_pb2.BlockState:
    """Return a block as a lookup answers it."""
    return cache_pb2.BlockState(
        miss=miss_value(view.miss),
        shard=shard,
        size_bytes=view.size_bytes,
        parts=view.parts,
        group=view.group,
    )


def block_stat(info: BlockInfo) -> cache_pb2.BlockStat:
    """Return a block as `Stat` answers it."""
    return cache_pb2.BlockStat(
        miss=miss_value(info.miss),
        size_bytes=info.size_bytes,
        parts=info.parts,
        group=info.group,
        age_ms=info.age_ms,
        idle_ms=info.idle_ms,
        lease_ms=info.lease_ms,
        pinned=info.pinned,
        digest=info.digest,
    )


def put_result(reply: WriteReply | KvorumError, zone: str) -> cache_pb2.PutResult:
    """Return what became of one item of a store."""
    if isinstance(reply, KvorumError):
        return cache_pb2.PutResult(
            outcome=cache_pb2.PUT_OUTCOME_REFUSED, error=status.to_detail(reply)
        )
    return cache_pb2.PutResult(
        outcome=_OUTCOMES[reply.outcome],
        tier=common_pb2.TIER_EVENTUAL,
        group=reply.group,
        zones=[] if reply.outcome is Outcome.STAGED else [zone],
        replicas=reply.replicas,
    )


def fingerprint_of(message: namespace_pb2.Fingerprint) -> Fingerprint:
    """Return the fingerprint that `message` holds.

    Raises:
        FingerprintError: a field is missing or invalid.
    """
    names = [field.name for field in message.DESCRIPTOR.fields]
    return Fingerprint.from_mapping({name: getattr(message, name) for name in names})


def policy_of(message: namespace_pb2.NamespacePolicy, zones: int) -> Policy:
    """Return the policy that `message` holds, with the defaults filled in.

    Args:
        message: the policy.
        zones: zones of the cluster.

    Raises:
        InvalidArgumentError: an unknown tier, or more replicas than zones.
    """
    if message.tier not in (common_pb2.TIER_UNSPECIFIED, common_pb2.TIER_EVENTUAL):
        raise InvalidArgumentError(
            f"tier is {message.tier}", field="policy.tier", limit="TIER_EVENTUAL"
        )
    check_range(message.replicas, 0, min(limits.REPLICAS_MAX, zones), "policy.replicas")
    for name in ("ttl_ms", "idle_ttl_ms", "quota_bytes"):
        check_range(getattr(message, name), 0, _REVISION_MAX, f"policy.{name}")
    return Policy(
        replicas=message.replicas or min(limits.REPLICAS_DEFAULT, zones),
        ttl_ms=message.ttl_ms,
        idle_ttl_ms=message.idle_ttl_ms,
        quota_bytes=message.quota_bytes,
    )


def namespace_message(record: NamespaceRecord, key_salt: bytes = b"") -> namespace_pb2.Namespace:
    """Return a namespace as it travels; with its salt for the tenant itself only."""
    policy = record.policy
    return namespace_pb2.Namespace(
        name=record.id.name,
        fingerprint=namespace_pb2.Fingerprint(**asdict(record.fingerprint)),
        policy=namespace_pb2.NamespacePolicy(
            tier=common_pb2.TIER_EVENTUAL,
            replicas=policy.replicas,
            ttl_ms=policy.ttl_ms,
            idle_ttl_ms=policy.idle_ttl_ms,
            quota_bytes=policy.quota_bytes,
        ),
        revision=record.revision,
        tenant=record.id.tenant,
        key_salt=key_salt,
    )


def record_message(record: NamespaceRecord) -> replication_pb2.NamespaceRecord:
    """Return a namespace or its tombstone as members exchange it."""
    return replication_pb2.NamespaceRecord(
        namespace=namespace_message(record), deleted=record.deleted
    )


def record_of(message: replication_pb2.NamespaceRecord, zones: int) -> NamespaceRecord:
    """Return the namespace or tombstone that a member sent.

    Raises:
        InvalidArgumentError: a field is malformed.
    """
    namespace = message.namespace
    check_range(namespace.revision, 1, _REVISION_MAX, "namespace.revision")
    return NamespaceRecord(
        NamespaceId(
            check_name(namespace.tenant, "namespace.tenant"),
            check_name(namespace.name, "namespace.name"),
        ),
        fingerprint_of(namespace.fingerprint),
        policy_of(namespace.policy, zones),
        namespace.revision,
        message.deleted,
    )
