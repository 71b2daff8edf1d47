"""NamespaceService: makes, changes and deletes the namespaces of the caller's tenant.

A change is applied here, then told to every other member. It succeeds when a majority of the
zones has it; a member that was away learns of it from the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from kvorum.core.errors import NamespaceConflictError, UnavailableError
from kvorum.core.keys import tenant_salt
from kvorum.core.names import check_name
from kvorum.node.engine.events import ApplyNamespace, NamespaceId, NamespaceRecord
from kvorum.node.service.desk import Desk
from kvorum.node.service.guard import Context
from kvorum.node.service.wire import fingerprint_of, namespace_message, policy_of
from kvorum.v1 import namespace_pb2, namespace_pb2_grpc

Announce: TypeAlias = "Callable[[NamespaceRecord], Awaitable[frozenset[str]]]"
"""Tells all other members of a record; returns the zones of those that have it."""


class NamespaceService(namespace_pb2_grpc.NamespaceServiceServicer):
    """The handlers of `NamespaceService`.

    Args:
        desk: what the handlers share.
        announce: tells the other members.
    """

    def __init__(self, desk: Desk, announce: Announce) -> None:
        self._desk = desk
        self._announce = announce

    async def CreateNamespace(
        self, request: namespace_pb2.CreateNamespaceRequest, context: Context
    ) -> namespace_pb2.CreateNamespaceResponse:
        """Make a namespace, unless there is an equal one."""
        tenant = self._desk.gatekeeper.tenant(request.context, context)
        wanted = request.namespace
        identity = NamespaceId(tenant, check_name(wanted.name, "namespace.name"))
        fingerprint = fingerprint_of(wanted.fingerprint)
        policy = policy_of(wanted.policy, len(self._desk.cluster.map.zones))
        known = self._desk.driver.engine.namespace(identity)
        if known is not None and not known.deleted:
            _check_equal(known, NamespaceRecord(identity, fingerprint, policy, known.revision))
            await self._spread(known)  # whoever made it may not have reached a majority
            return namespace_pb2.CreateNamespaceResponse(namespace=self._message(known))
        revision = 1 if known is None else known.revision + 1
        record = NamespaceRecord(identity, fingerprint, policy, revision)
        await self._change(record)
        return namespace_pb2.CreateNamespaceResponse(namespace=self._message(record), created=True)

    async def GetNamespace(
        self, request: namespace_pb2.GetNamespaceRequest, context: Context
    ) -> namespace_pb2.GetNamespaceResponse:
        """Return one namespace."""
        record = self._desk.driver.namespace(self._named(request, context))
        return namespace_pb2.GetNamespaceResponse(namespace=self._message(record))

    async def ListNamespaces(
        self, request: namespace_pb2.ListNamespacesRequest, context: Context
    ) -> namespace_pb2.ListNamespacesResponse:
        """Return the namespaces of the caller's tenant, by name."""
        tenant = self._desk.gatekeeper.tenant(request.context, context)
        records = self._desk.driver.engine.namespaces()
        mine = [r for r in records if r.id.tenant == tenant and not r.deleted]
        return namespace_pb2.ListNamespacesResponse(
            namespaces=[self._message(r) for r in sorted(mine, key=lambda r: r.id.name)]
        )

    async def UpdateNamespace(
        self, request: namespace_pb2.UpdateNamespaceRequest, context: Context
    ) -> namespace_pb2.UpdateNamespaceResponse:
        """Change a namespace's policy."""
        identity = self._named(request, context)
        policy = policy_of(request.policy, len(self._desk.cluster.map.zones))
        known = self._desk.driver.namespace(identity)
        if request.if_revision not in (0, known.revision):
            raise NamespaceConflictError(
                f"the namespace has the revision {known.revision}",
                field="if_revision",
                limit=str(known.revision),
            )
        record = replace(known, policy=policy, revision=known.revision + 1)
        await self._change(record)
        return namespace_pb2.UpdateNamespaceResponse(namespace=self._message(record))

    async def DeleteNamespace(
        self, request: namespace_pb2.DeleteNamespaceRequest, context: Context
    ) -> namespace_pb2.DeleteNamespaceResponse:
        """Delete a namespace with all its blocks."""
        known = self._desk.driver.engine.namespace(self._named(request, context))
        if known is None:
            return namespace_pb2.DeleteNamespaceResponse(deleted=False)
        if known.deleted:
            await self._spread(known)  # as in CreateNamespace
            return namespace_pb2.DeleteNamespaceResponse(deleted=False)
        await self._change(replace(known, revision=known.revision + 1, deleted=True))
        return namespace_pb2.DeleteNamespaceResponse(deleted=True)

    def _named(
        self,
        request: namespace_pb2.GetNamespaceRequest
        | namespace_pb2.UpdateNamespaceRequest
        | namespace_pb2.DeleteNamespaceRequest,
        context: Context,
    ) -> NamespaceId:
        tenant = self._desk.gatekeeper.tenant(request.context, context)
        return NamespaceId(tenant, check_name(request.name, "name"))

    async def _change(self, record: NamespaceRecord) -> None:
        self._desk.driver.tell(ApplyNamespace(record))
        await self._spread(record)

    async def _spread(self, record: NamespaceRecord) -> None:
        zones = self._desk.cluster.map.zones
        reached = await self._announce(record) | {self._desk.lifecycle.identity.member.zone}
        if 2 * len(reached) <= len(zones):
            raise UnavailableError(
                f"{len(reached)} of {len(zones)} zones have the change; the others get it later",
                field="namespace",
                limit="a majority of the zones",
                retry_after_s=1.0,
            )
        if self._desk.driver.engine.namespace(record.id) != record:
            raise NamespaceConflictError(
                "another change went before this one", field="namespace.revision"
            )

    def _message(self, record: NamespaceRecord) -> namespace_pb2.Namespace:
        salt = tenant_salt(self._desk.cluster.key_secret, record.id.tenant)
        return namespace_message(record, salt)


def _check_equal(known: NamespaceRecord, wanted: NamespaceRecord) -> None:
    for name in ("fingerprint", "policy"):
        if getattr(known, name) != getattr(wanted, name):
            raise NamespaceConflictError(
                f"{known.id.name} exists with another {name}", field=f"namespace.{name}"
            )
