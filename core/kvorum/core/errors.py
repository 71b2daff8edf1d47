"""The one error tree of Kvorum.

KvorumError
├── InvalidArgumentError          the request can never succeed as it is
│   ├── TooLargeError             a size or count is over its limit
│   ├── FingerprintError          a fingerprint field is missing or differs from the namespace's
│   └── ChecksumError             the bytes that arrived are not the bytes that were announced
├── UnauthenticatedError          no valid credentials
├── PermissionDeniedError         valid credentials of another tenant
├── NamespaceNotFoundError
├── NamespaceConflictError        the name exists with another definition
├── ProtocolVersionError          client and server speak different protocol versions
├── MapMismatchError              client and server hold different cluster maps
├── NotOwnerError                 this shard does not own the block's slot
├── IncarnationError              the node was born again since the caller last spoke with it
├── OverloadedError       (retry) a bounded queue is full
│   ├── ArenaFullError    (retry) what is not pinned, leased or in use would not make room
│   ├── QuotaError        (retry) the namespace is at its quota
│   └── DrainingError     (retry) the node takes no new work; another replica does
├── DeadlineError         (retry) the caller's deadline passed
├── UnavailableError      (retry) no connection, or the connection broke
└── InternalError                 a defect in Kvorum

`retryable` says whether the same request may succeed later or elsewhere. Each class has one
`code`; `kvorum.v1.status` maps codes to gRPC statuses, and nothing else does.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final

_SHOWN_CHARS_MAX: Final = 100
_SHOWN_BITS_MAX: Final = 64


class ErrorCode(enum.IntEnum):
    """Stable numbers, equal to `kvorum.v1.ErrorCode` on the wire."""

    INTERNAL = 1
    INVALID_ARGUMENT = 2
    TOO_LARGE = 3
    FINGERPRINT = 4
    CHECKSUM = 5
    UNAUTHENTICATED = 6
    PERMISSION_DENIED = 7
    NAMESPACE_NOT_FOUND = 8
    NAMESPACE_CONFLICT = 9
    PROTOCOL_VERSION = 10
    MAP_MISMATCH = 11
    NOT_OWNER = 12
    INCARNATION = 13
    OVERLOADED = 14
    ARENA_FULL = 15
    QUOTA = 16
    DRAINING = 17
    DEADLINE = 18
    UNAVAILABLE = 19


class KvorumError(Exception):
    """Base class of every error that Kvorum raises on purpose.

    Attributes:
        field: the request field or setting at fault, in dotted form; empty if none.
        limit: the limit that was broken, as text with its unit; empty if none.
        retry_after_s: a hint, in seconds, when a retry may succeed; None if there is none.
    """

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        limit: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.limit = limit
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        parts = [self.message]
        if self.field:
            parts.append(f"field: {self.field}")
        if self.limit:
            parts.append(f"limit: {self.limit}")
        return "; ".join(parts)


class InvalidArgumentError(KvorumError):
    """The request can never succeed as it is."""

    code = ErrorCode.INVALID_ARGUMENT


class TooLargeError(InvalidArgumentError):
    """A size or a count is over its limit."""

    code = ErrorCode.TOO_LARGE


class FingerprintError(InvalidArgumentError):
    """A fingerprint field is missing, or differs from the namespace's."""

    code = ErrorCode.FINGERPRINT


class ChecksumError(InvalidArgumentError):
    """The bytes that arrived are not the bytes that were announced."""

    code = ErrorCode.CHECKSUM


class UnauthenticatedError(KvorumError):
    """The caller showed no valid credentials."""

    code = ErrorCode.UNAUTHENTICATED


class PermissionDeniedError(KvorumError):
    """The caller's tenant may not use what it asked for."""

    code = ErrorCode.PERMISSION_DENIED


class NamespaceNotFoundError(KvorumError):
    """No namespace has that name in the caller's tenant."""

    code = ErrorCode.NAMESPACE_NOT_FOUND


class NamespaceConflictError(KvorumError):
    """The namespace exists with another definition."""

    code = ErrorCode.NAMESPACE_CONFLICT


class ProtocolVersionError(KvorumError):
    """Caller and server speak different protocol versions."""

    code = ErrorCode.PROTOCOL_VERSION


class MapMismatchError(KvorumError):
    """Caller and server hold different cluster maps."""

    code = ErrorCode.MAP_MISMATCH


class NotOwnerError(KvorumError):
    """The shard that was asked does not own the block's slot."""

    code = ErrorCode.NOT_OWNER


class IncarnationError(KvorumError):
    """The node was born again since the caller last spoke with it."""

    code = ErrorCode.INCARNATION


class OverloadedError(KvorumError):
    """A bounded queue is full; the answer is quick so that the caller can go elsewhere."""

    code = ErrorCode.OVERLOADED
    retryable = True


class ArenaFullError(OverloadedError):
    """Evicting all that is not pinned, leased or in use would not make room."""

    code = ErrorCode.ARENA_FULL


class QuotaError(OverloadedError):
    """The namespace is at its quota and nothing of its own can be evicted."""

    code = ErrorCode.QUOTA


class DrainingError(OverloadedError):
    """The node takes no new work; another replica does."""

    code = ErrorCode.DRAINING


class DeadlineError(KvorumError):
    """The caller's deadline passed before the answer was complete."""

    code = ErrorCode.DEADLINE
    retryable = True


class UnavailableError(KvorumError):
    """No connection to the node, or the connection broke."""

    code = ErrorCode.UNAVAILABLE
    retryable = True


class InternalError(KvorumError):
    """A defect in Kvorum."""


def _tree(root: type[KvorumError]) -> list[type[KvorumError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


ERROR_BY_CODE: dict[ErrorCode, type[KvorumError]] = {
    cls.code: cls for cls in _tree(KvorumError) if cls is not KvorumError
}
"""Every error class by its code; `InternalError` stands for the base class."""


def shown(value: object) -> str:
    """Return how an error message shows a value that came from outside: short whatever it is."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str) and len(value) > _SHOWN_CHARS_MAX:
        return f"{value[:_SHOWN_CHARS_MAX]!r}..."
    if value is None or isinstance(value, int | float | str):
        return repr(value)
    return f"a {type(value).__name__}"
