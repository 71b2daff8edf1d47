"""Gatekeeper: whether a caller may speak with this node, and whether both mean the same cluster."""

from __future__ import annotations

from kvorum.core import limits
from kvorum.core.errors import IncarnationError, MapMismatchError, ProtocolVersionError
from kvorum.node.auth import Authenticator, Caller
from kvorum.node.engine.events import NamespaceId
from kvorum.node.lifecycle import Identity
from kvorum.node.service.guard import Context
from kvorum.node.service.validation import check_namespace
from kvorum.v1 import common_pb2


class Gatekeeper:
    """Checks the context of every request.

    Args:
        identity: this node.
        authenticator: knows the callers.
    """

    def __init__(self, identity: Identity, authenticator: Authenticator) -> None:
        self._identity = identity
        self._authenticator = authenticator

    def check_context(
        self, context: common_pb2.RequestContext, *, map_needed: bool = False
    ) -> None:
        """Check what a request says about its caller.

        Raises:
            ProtocolVersionError: the caller speaks another version.
            MapMismatchError: the caller has another map, or none where it is needed.
            IncarnationError: the caller means an earlier or later life of this node.
        """
        if context.protocol_version != limits.PROTOCOL_VERSION:
            raise ProtocolVersionError(
                f"the caller speaks version {context.protocol_version}",
                field="context.protocol_version",
                limit=f"version {limits.PROTOCOL_VERSION}",
            )
        if (context.map_digest or map_needed) and context.map_digest != self._identity.map_digest:
            raise MapMismatchError(
                "the caller holds another cluster map",
                field="context.map_digest",
                limit=self._identity.map_digest.hex(),
            )
        if context.incarnation not in (0, self._identity.incarnation):
            raise IncarnationError(
                f"this node has the incarnation {self._identity.incarnation}",
                field="context.incarnation",
                limit=str(self._identity.incarnation),
            )

    def tenant(self, request: common_pb2.RequestContext, context: Context) -> str:
        """Return the name of the tenant that calls.

        Raises:
            KvorumError: see `check_context` and `Authenticator.tenant`.
        """
        tenant = self._authenticator.tenant(context.invocation_metadata())
        self.check_context(request)
        return tenant

    def namespace(
        self,
        request: common_pb2.RequestContext,
        ref: common_pb2.NamespaceRef,
        context: Context,
    ) -> NamespaceId:
        """Return the namespace that a tenant's request means; whether it exists is not checked.

        Raises:
            KvorumError: see `tenant` and `check_namespace`.
        """
        tenant = self.tenant(request, context)
        check_namespace(ref)
        return NamespaceId(tenant, ref.name)

    def peer(self, request: common_pb2.RequestContext, context: Context) -> None:
        """Check that a member of this cluster calls, with the same map.

        Raises:
            KvorumError: see `check_context` and `Authenticator.require_peer`.
        """
        self._authenticator.require_peer(context.invocation_metadata())
        self.check_context(request, map_needed=True)

    def caller(self, request: common_pb2.RequestContext, context: Context) -> Caller:
        """Return who calls, whoever of the three it is.

        Raises:
            KvorumError: see `check_context` and `Authenticator.caller`.
        """
        caller = self._authenticator.caller(context.invocation_metadata())
        self.check_context(request)
        return caller

    def admin(self, request: common_pb2.RequestContext, context: Context) -> None:
        """Check that an operator calls.

        Raises:
            KvorumError: see `check_context` and `Authenticator.require_admin`.
        """
        self._authenticator.require_admin(context.invocation_metadata())
        self.check_context(request)
