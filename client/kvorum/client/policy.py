"""NamespacePolicy: how the client asks a new namespace's blocks to be kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError
from kvorum.v1 import common_pb2, namespace_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePolicy:
    """How blocks are kept. It counts when the namespace is made; a namespace keeps its own.

    Attributes:
        replicas: zones that hold each block, 1 to 3; 0 for two, or the zones there are if fewer.
        ttl_s: seconds after its store at which a block expires; 0 for never.
        idle_ttl_s: seconds after its last use at which a block expires; 0 for never.
        quota_bytes: bytes that the namespace may hold on one node; 0 for the node's whole arena.

    Raises:
        InvalidArgumentError: a value is out of its range.
    """

    replicas: int = 0
    ttl_s: float = 0.0
    idle_ttl_s: float = 0.0
    quota_bytes: int = 0

    def __post_init__(self) -> None:
        self._check_count("replicas", limits.REPLICAS_MAX)
        self._check_count("quota_bytes", 2**63 - 1)
        for name in ("ttl_s", "idle_ttl_s"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or not 0 <= value <= 2**40:
                raise InvalidArgumentError(
                    f"{name} is {value!r}", field=f"policy.{name}", limit="0 or more seconds"
                )

    def _check_count(self, name: str, high: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
            raise InvalidArgumentError(
                f"{name} is {value!r}", field=f"policy.{name}", limit=f"0 to {high}"
            )

    def to_message(self) -> namespace_pb2.NamespacePolicy:
        """Return the policy as it travels."""
        return namespace_pb2.NamespacePolicy(
            tier=common_pb2.TIER_EVENTUAL,
            replicas=self.replicas,
            ttl_ms=math.ceil(self.ttl_s * 1000),
            idle_ttl_ms=math.ceil(self.idle_ttl_s * 1000),
            quota_bytes=self.quota_bytes,
        )


DEFAULT_POLICY: Final = NamespacePolicy()
"""What a client asks for if it says nothing else."""
