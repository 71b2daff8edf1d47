"""Finder: asks nodes for the cluster map, and opens the namespace, making it if need be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kvorum.client.caller import Caller, request_context
from kvorum.client.policy import NamespacePolicy
from kvorum.client.race import first_success, successes
from kvorum.client.view import (
    View,
    check_namespace,
    choose_map,
    fingerprint_message,
    parse_map,
    replicas_kept,
)
from kvorum.core.errors import (
    InvalidArgumentError,
    NamespaceConflictError,
    NamespaceNotFoundError,
)
from kvorum.core.fingerprint import Fingerprint
from kvorum.placement import ClusterMap, Member
from kvorum.v1 import cluster_pb2, namespace_pb2

_STAGGER_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Target:
    """What a client was made for.

    Attributes:
        endpoints: addresses at which to look for the cluster.
        zone: the client's own zone; None if it has none.
        namespace: name of the namespace.
        fingerprint: the client's fingerprint.
        policy: policy of the namespace if it has to be made.
        create: whether to make the namespace if there is none.
        loopback_only: whether to refuse nodes on other machines, because a token would travel to
            them in plain text.
    """

    endpoints: tuple[str, ...]
    zone: str | None
    namespace: str
    fingerprint: Fingerprint
    policy: NamespacePolicy
    create: bool
    loopback_only: bool


class Finder:
    """Finds what a view is made of.

    Args:
        target: what the client was made for.
        caller: calls nodes.
        timeout_s: seconds that one call may take.
    """

    def __init__(self, target: Target, caller: Caller, timeout_s: float) -> None:
        self._target = target
        self._caller = caller
        self._timeout_s = timeout_s

    async def find(self, known: View | None) -> View:
        """Return a fresh view.

        Args:
            known: the view so far; None for the first.

        Raises:
            InvalidArgumentError: see `current_map`.
            NamespaceConflictError: the namespace has another fingerprint.
            KvorumError: no node answers, or what they answered.
        """
        cluster_map, map_digest = await self.current_map(known)
        namespace = await self._open_namespace(cluster_map, map_digest)
        check_namespace(namespace, self._target.fingerprint)
        return View(
            map=cluster_map,
            map_digest=map_digest,
            zone=self._target.zone,
            namespace=self._target.namespace,
            fingerprint=self._target.fingerprint,
            fingerprint_digest=self._target.fingerprint.digest(),
            salt=namespace.key_salt,
            replicas=replicas_kept(namespace.policy, cluster_map.zones),
        )

    async def current_map(self, known: View | None) -> tuple[ClusterMap, bytes]:
        """Ask for the cluster map; return it with its digest. No namespace is needed for it.

        Raises:
            InvalidArgumentError: the token would travel in plain text beyond this machine.
            KvorumError: no node answers.
        """
        answer = await self.ask_map(known)
        cluster_map = parse_map(answer)
        far = [member for member in cluster_map.members if not member.is_loopback]
        if self._target.loopback_only and far:
            raise InvalidArgumentError(
                f"the token would travel to {far[0].address} in plain text",
                field="tls",
                limit="loopback addresses, or tls",
            )
        return cluster_map, answer.map_digest

    async def ask_map(self, known: View | None) -> cluster_pb2.GetTopologyResponse:
        """Ask for the cluster map; the one on which most nodes agree counts.

        The endpoints are asked, and one node of each zone that is known.

        Raises:
            KvorumError: no node answers.
        """
        members = _one_of_each_zone(known.map, known.zone) if known else ()
        addresses = dict.fromkeys((*self._target.endpoints, *(m.address for m in members)))
        attempts = [partial(self._ask_map_at, address) for address in addresses]
        return choose_map(await successes(attempts, _STAGGER_S))

    async def _ask_map_at(self, address: str) -> cluster_pb2.GetTopologyResponse:
        return await self._caller.anonymous(
            address,
            self._caller.pool.link(address).cluster.GetTopology,
            cluster_pb2.GetTopologyRequest(context=request_context(b"")),
            self._timeout_s,
        )

    async def _open_namespace(
        self, cluster_map: ClusterMap, map_digest: bytes
    ) -> namespace_pb2.Namespace:
        """Return the namespace as one node of several knows it, or make it."""
        members = _one_of_each_zone(cluster_map, self._target.zone)
        context = request_context(map_digest)
        get = namespace_pb2.GetNamespaceRequest(context=context, name=self._target.namespace)
        asking = [partial(self._get_namespace, member, get) for member in members]
        try:
            return await first_success(asking, _STAGGER_S)
        except NamespaceNotFoundError:
            if not self._target.create:
                raise
        wanted = namespace_pb2.Namespace(
            name=self._target.namespace,
            fingerprint=fingerprint_message(self._target.fingerprint),
            policy=self._target.policy.to_message(),
        )
        make = namespace_pb2.CreateNamespaceRequest(context=context, namespace=wanted)
        try:
            return await first_success(
                [partial(self._create_namespace, member, make) for member in members],
                self._timeout_s,
            )
        except NamespaceConflictError:
            # Somebody made it since, with another policy, which is no conflict: it keeps its own.
            # Another fingerprint is one, and `find` says so.
            return await first_success(asking, _STAGGER_S)

    async def _get_namespace(
        self, member: Member, request: namespace_pb2.GetNamespaceRequest
    ) -> namespace_pb2.Namespace:
        method = self._caller.link(member).namespaces.GetNamespace
        answer = await self._caller.anonymous(member.name, method, request, self._timeout_s)
        return answer.namespace

    async def _create_namespace(
        self, member: Member, request: namespace_pb2.CreateNamespaceRequest
    ) -> namespace_pb2.Namespace:
        method = self._caller.link(member).namespaces.CreateNamespace
        answer = await self._caller.anonymous(member.name, method, request, self._timeout_s)
        return answer.namespace


def _one_of_each_zone(cluster_map: ClusterMap, zone: str | None) -> Sequence[Member]:
    """Return one node of each zone, the own zone first; which one is drawn."""
    shard = random.choice(cluster_map.shards)  # noqa: S311  # spreads load, guards nothing
    return cluster_map.nearest(cluster_map.shard_members(shard), zone)
