"""Which namespaces exist, at which revision, and which were deleted."""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import FingerprintError, NamespaceNotFoundError, TooLargeError
from kvorum.node.engine.entries import Namespace
from kvorum.node.engine.events import NamespaceId, NamespaceRecord

_DELETED_MAX: Final = 4 * limits.NAMESPACES_MAX


class Namespaces:
    """The namespaces of a cluster as this node knows them."""

    def __init__(self) -> None:
        self._live: dict[NamespaceId, Namespace] = {}
        self._deleted: OrderedDict[NamespaceId, NamespaceRecord] = OrderedDict()
        self._serial = 0

    def live(self) -> tuple[Namespace, ...]:
        """Return all namespaces that exist."""
        return tuple(self._live.values())

    def records(self) -> tuple[NamespaceRecord, ...]:
        """Return every record, deleted ones included: what peers exchange."""
        return (*(one.record for one in self._live.values()), *self._deleted.values())

    def find(self, name: NamespaceId) -> Namespace | None:
        """Return a namespace, or None if it does not exist."""
        return self._live.get(name)

    def get(self, name: NamespaceId) -> Namespace:
        """Return a namespace.

        Raises:
            NamespaceNotFoundError: it does not exist.
        """
        namespace = self._live.get(name)
        if namespace is None:
            raise NamespaceNotFoundError(f"no namespace {name.name!r}", field="namespace.name")
        return namespace

    def for_writing(self, name: NamespaceId, fingerprint_digest: bytes) -> Namespace:
        """Return a namespace for somebody who changes its blocks.

        Raises:
            NamespaceNotFoundError: it does not exist.
            FingerprintError: its fingerprint is another one.
        """
        namespace = self.get(name)
        if namespace.digest != fingerprint_digest:
            raise FingerprintError(
                f"the namespace {name.name!r} has another fingerprint",
                field="namespace.fingerprint_digest",
            )
        return namespace

    def record(self, name: NamespaceId) -> NamespaceRecord | None:
        """Return the latest record of a namespace, its tombstone if it was deleted."""
        namespace = self._live.get(name)
        return namespace.record if namespace is not None else self._deleted.get(name)

    def apply(self, record: NamespaceRecord) -> tuple[bool, Namespace | None]:
        """Take a record in; return whether it was news, and the namespace that ended by it.

        Another fingerprint ends the namespace too: its blocks are of no use to the new one.

        Raises:
            TooLargeError: it would be one namespace too many.
        """
        known = self.record(record.id)
        if known is not None and precedence(known) >= precedence(record):
            return False, None
        old = self._live.get(record.id)
        if record.deleted:
            self._live.pop(record.id, None)
            self._bury(record)
        elif old is not None and old.record.fingerprint == record.fingerprint:
            old.define(record)
            return True, None
        else:
            self._add(record)
        if old is not None:
            old.gone = True
        return True, old

    def _add(self, record: NamespaceRecord) -> None:
        if record.id not in self._live and len(self._live) >= limits.NAMESPACES_MAX:
            raise TooLargeError(
                "the cluster has as many namespaces as it may",
                field="namespace",
                limit=f"{limits.NAMESPACES_MAX} namespaces",
            )
        self._deleted.pop(record.id, None)
        self._serial += 1
        self._live[record.id] = Namespace(record, self._serial)

    def _bury(self, record: NamespaceRecord) -> None:
        self._deleted[record.id] = record
        self._deleted.move_to_end(record.id)
        if len(self._deleted) > _DELETED_MAX:
            self._deleted.popitem(last=False)


def precedence(record: NamespaceRecord) -> tuple[int, bool, bytes]:
    """Return a record's place in the order in which members agree on one; the greatest wins."""
    policy = record.policy
    canonical = record.fingerprint.canonical() + struct.pack(
        ">QQQQ", policy.replicas, policy.ttl_ms, policy.idle_ttl_ms, policy.quota_bytes
    )
    return record.revision, record.deleted, canonical
