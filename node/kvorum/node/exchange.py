"""NamespaceExchange: what members tell one another of namespaces, in every heartbeat.

Everybody sends everything, so that whoever was away catches up whatever it missed. What did not
change since the last time costs next to nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Final

from kvorum.core.errors import KvorumError
from kvorum.node.driver import Driver
from kvorum.node.engine.events import ApplyNamespace, NamespaceRecord
from kvorum.node.service.wire import record_message, record_of
from kvorum.v1 import replication_pb2

_LOG: Final = logging.getLogger(__name__)


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
        self._messages: Sequence[replication_pb2.NamespaceRecord] = ()
        self._seen: dict[str, bytes] = {}

    def messages(self) -> Sequence[replication_pb2.NamespaceRecord]:
        """Return all namespaces that this node knows, deleted ones included."""
        records = self._driver.engine.namespaces()
        if records != self._records:
            self._records = records
            self._messages = [record_message(record) for record in records]
        return self._messages

    def take_in(self, peer: str, messages: Sequence[replication_pb2.NamespaceRecord]) -> None:
        """Apply what a peer knows. A record that cannot be applied is logged and left out."""
        seen = hashlib.sha3_256(b"".join(m.SerializeToString() for m in messages)).digest()
        if self._seen.get(peer) == seen:
            return
        for message in messages:
            try:
                self.apply(message)
            except KvorumError as error:
                name = message.namespace.name
                _LOG.warning("namespace not applied: peer=%s name=%s: %s", peer, name, error)
        self._seen[peer] = seen

    def apply(self, message: replication_pb2.NamespaceRecord) -> bool:
        """Apply one record; return whether it was news.

        Raises:
            KvorumError: the record is malformed, or one namespace too many.
        """
        return self._driver.tell(ApplyNamespace(record_of(message, self._zones)))
