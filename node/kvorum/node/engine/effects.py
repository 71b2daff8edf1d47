"""What the engine asks its driver to carry out; see `events`, which exports these names too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kvorum.node.engine.values import NamespaceId


@dataclass(frozen=True, slots=True)
class Replicate:
    """Carry this block, as it is now, to the other replicas of its slot."""

    namespace: NamespaceId
    key: bytes
    slot: int
    replicas: int
    clock: int
    size_bytes: int
    overwrite: bool


@dataclass(frozen=True, slots=True)
class ReplicateTombstone:
    """Tell the other replicas of the slot that this block was deleted."""

    namespace: NamespaceId
    key: bytes
    slot: int
    replicas: int
    clock: int


Effect: TypeAlias = Replicate | ReplicateTombstone
