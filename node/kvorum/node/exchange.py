"""NamespaceExchange: what members tell one another of namespaces, in every heartbeat.

Everybody sends everything, so that whoever was away catches up whatever it missed. What did not
change since the last time costs next to nothing, and what is too much for one message goes in
turns: no tenant can make so many namespaces that heartbeats fail.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import KvorumError
from kvorum.node.driver import Driver
from kvorum.node.engine.events import ApplyNamespace, NamespaceId, NamespaceRecord
from kvorum.node.service.wire import record_message, record_of
from kvorum.v1 import replication_pb2

_LOG: Final = logging.getLogger(__name__)

PAGE_BYTES_MAX: Final = limits.MESSAGE_BYTES_MAX // 2
_SEEN_MAX: Final = 32
"""Pages of one peer that are remembered; all that it may know fits in."""


class NamespaceExchange:
    """The namespaces of this node, as messages, and those of others, taken in.

    Args:
        driver: knows the namespaces.
        zones: zones of the cluster.
    """

    def __init__(self, driver: Driver, zones: int) -> None:
        self._driver = driver
        self._zones = zones
        self._records: tuple[NamespaceRecord, ...] = ()
        self._pages: list[list[replication_pb2.NamespaceRecord]] = [[]]
        self._turns: Counter[str] = Counter()
        self._seen: dict[str, deque[bytes]] = {}

    def messages(self, peer: str) -> Sequence[replication_pb2.NamespaceRecord]:
        """Return the namespaces that this node knows, deleted ones included.

        If they are too many for one message, each call for a peer returns the next of them.
        """
        records = self._driver.engine.namespaces()
        if records != self._records:
            self._records = records
            self._pages = _pages(records)
        page = self._pages[self._turns[peer] % len(self._pages)]
        self._turns[peer] += 1
        return page

    def take_in(self, peer: str, messages: Sequence[replication_pb2.NamespaceRecord]) -> None:
        """Apply what a peer knows. A record that cannot be applied is logged and left out."""
        seen = hashlib.sha3_256(b"".join(m.SerializeToString() for m in messages)).digest()
        latest = self._seen.setdefault(peer, deque(maxlen=_SEEN_MAX))
        if seen in latest:
            return
        for message in messages:
            try:
                self.apply(message)
            except KvorumError as error:
                name = message.namespace.name
                _LOG.warning("namespace not applied: peer=%s name=%s: %s", peer, name, error)
        latest.append(seen)

    def apply(self, message: replication_pb2.NamespaceRecord) -> bool:
        """Apply one record; return whether it was news.

        Raises:
            KvorumError: the record is malformed, or one namespace too many.
        """
        return self._driver.tell(ApplyNamespace(record_of(message, self._zones)))

    def known(self, message: replication_pb2.NamespaceRecord) -> replication_pb2.NamespaceRecord:
        """Return what this node holds under the name of a record that was no news."""
        name = NamespaceId(message.namespace.tenant, message.namespace.name)
        record = self._driver.engine.namespace(name)
        return message if record is None else record_message(record)


def _pages(records: Iterable[NamespaceRecord]) -> list[list[replication_pb2.NamespaceRecord]]:
    """Return records as messages, in lists that each fit into a heartbeat; at least one."""
    pages: list[list[replication_pb2.NamespaceRecord]] = [[]]
    room = PAGE_BYTES_MAX
    for message in map(record_message, records):
        size = message.ByteSize()
        if size > room and pages[-1]:
            pages.append([])
            room = PAGE_BYTES_MAX
        pages[-1].append(message)
        room -= size
    return pages
