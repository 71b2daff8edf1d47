"""The nouns of the engine's events and effects; see `events`, which exports these names too."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kvorum.core.fingerprint import Fingerprint


class Miss(enum.IntEnum):
    """Why a block is absent; numbers equal `kvorum.v1.MissReason`."""

    NEVER_STORED = 1
    EVICTED = 2
    EXPIRED = 3
    INVALIDATED = 4
    NODE_DOWN = 5
    CHECKSUM = 6
    FINGERPRINT = 7
    STALE_EPOCH = 8
    TIMEOUT = 9
    DENIED = 10
    OFFLOADED = 11


@dataclass(frozen=True, slots=True)
class NamespaceId:
    """A namespace's name in the cluster."""

    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class Policy:
    """How a namespace's blocks are kept; times in milliseconds, 0 for never or no limit."""

    replicas: int
    ttl_ms: int = 0
    idle_ttl_ms: int = 0
    quota_bytes: int = 0


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A namespace at one revision, or its tombstone."""

    id: NamespaceId
    fingerprint: Fingerprint
    policy: Policy
    revision: int
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class BlockView:
    """A block as a lookup sees it."""

    miss: Miss | None
    size_bytes: int = 0
    parts: int = 0
    group: int = 0


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of arena bytes with the checksums of its frames."""

    offset: int
    frame_sizes: tuple[int, ...]
    frame_crc32c: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the run."""
        return sum(self.frame_sizes)

    def is_same(self, frame_sizes: tuple[int, ...], frame_crc32c: tuple[int, ...]) -> bool:
        """Return whether frames of these sizes and checksums are what the run holds."""
        return self.frame_sizes == frame_sizes and self.frame_crc32c == frame_crc32c


class Condition(enum.Enum):
    """When a block is stored."""

    IF_ABSENT = enum.auto()
    OVERWRITE = enum.auto()
    IF_GROUP = enum.auto()


class Outcome(enum.Enum):
    """What became of a written part; numbers equal `kvorum.v1.PutOutcome`."""

    STORED = 1
    ALREADY_STORED = 2
    STAGED = 3


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """Everything about a block; ages in milliseconds."""

    miss: Miss | None
    size_bytes: int = 0
    parts: int = 0
    group: int = 0
    age_ms: int = 0
    idle_ms: int = 0
    lease_ms: int = 0
    pinned: bool = False
    digest: int = 0
