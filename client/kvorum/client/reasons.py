"""Miss reasons: from numbers that arrived, and from errors."""

from __future__ import annotations

from typing import Final

from kvorum.client.results import MissReason
from kvorum.core.errors import (
    ChecksumError,
    DeadlineError,
    FingerprintError,
    KvorumError,
    MapMismatchError,
    NamespaceConflictError,
    NamespaceNotFoundError,
    NotOwnerError,
    OverloadedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

_REASONS: Final = (
    (PermissionDeniedError | UnauthenticatedError, MissReason.DENIED),
    (FingerprintError | NamespaceConflictError, MissReason.FINGERPRINT),
    (NamespaceNotFoundError, MissReason.NEVER_STORED),
    (MapMismatchError | NotOwnerError, MissReason.STALE_EPOCH),
    (DeadlineError | OverloadedError, MissReason.TIMEOUT),
    (ChecksumError, MissReason.CHECKSUM),
)
_KNOWN: Final = {int(reason): reason for reason in MissReason}


def reason_of(error: KvorumError) -> MissReason:
    """Return the miss reason that an error of a node, or of the whole cluster, stands for."""
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            return reason
    return MissReason.NODE_DOWN


def miss_of(number: int) -> MissReason | None:
    """Return a miss reason that arrived; one from a later version means that nobody knows."""
    return _KNOWN.get(number, MissReason.NODE_DOWN) if number else None
