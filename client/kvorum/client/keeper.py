"""Keeper: finds the cluster, opens the namespace, and keeps what the client knows up to date.

It works in the background from the first call on. Calls never wait for it longer than their own
deadline, and not at all once it is known that the cluster cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kvorum.client.caller import Caller, request_context
from kvorum.client.policy import NamespacePolicy
from kvorum.client.pool import Link
from kvorum.client.race import first_success, successes
from kvorum.client.settings import ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.view import (
    View,
    check_namespace,
    choose_map,
    fingerprint_message,
    parse_map,
    replicas_kept,
)
from kvorum.core.errors import (
    DeadlineError,
    IncarnationError,
    InternalError,
    InvalidArgumentError,
    KvorumError,
    MapMismatchError,
    NamespaceConflictError,
    NamespaceNotFoundError,
    NotOwnerError,
    PermissionDeniedError,
    ProtocolVersionError,
    UnauthenticatedError,
    UnavailableError,
)
from kvorum.core.fingerprint import Fingerprint
from kvorum.placement import ClusterMap, Member
from kvorum.v1 import cluster_pb2, namespace_pb2

_log = logging.getLogger(__name__)

_STAGGER_S: Final = 0.1
_REFRESH_S: Final = 30.0
_TICK_S: Final = 0.02
_OUT_OF_DATE: Final = (MapMismatchError, NotOwnerError, IncarnationError, NamespaceNotFoundError)
_IN_VAIN: Final = (
    NamespaceConflictError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ProtocolVersionError,
    UnauthenticatedError,
    InvalidArgumentError,
)


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


class Keeper:
    """Keeps the view.

    Attributes:
        view: what is known; None before the cluster was found.
        error: why there is no view; None while the first attempt runs.

    Args:
        target: what the client was made for.
        caller: calls nodes.
        settings: waits.
        stats: counts refreshes.
    """

    def __init__(
        self, target: Target, caller: Caller, settings: ClientSettings, stats: ClientStats
    ) -> None:
        self.view: View | None = None
        self.error: KvorumError | None = None
        self._target = target
        self._caller = caller
        self._settings = settings
        self._stats = stats
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._attempted = asyncio.Condition()
        self._closed = False

    # ------------------------------------------------------------ for callers

    def start(self) -> None:
        """Begin to work in the background, unless that has begun or ended."""
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(), name="kvorum-keeper")

    def notice(self, error: KvorumError) -> None:
        """Refresh soon if `error` says that what is known is out of date."""
        if isinstance(error, _OUT_OF_DATE):
            self._wanted.set()

    async def get(self, timeout_s: float) -> View:
        """Return the view; wait for the first attempt only.

        Raises:
            KvorumError: there is no view, and why.
        """
        self.start()
        if self.view is None and self.error is None:
            await self._wait(timeout_s)
        return self._result()

    async def connect(self, timeout_s: float) -> View:
        """Return the view; wait for as many attempts as it takes, unless they are in vain.

        Raises:
            KvorumError: there is no view, and why.
        """
        self.start()
        end = time.monotonic() + timeout_s
        while self.view is None and not (self._closed or isinstance(self.error, _IN_VAIN)):
            left = end - time.monotonic()
            if left <= 0:
                break
            await self._wait(left)
        return self._result()

    async def refreshed(self, timeout_s: float) -> View:
        """Return the view after a refresh that began now.

        Raises:
            KvorumError: there is no view, and why.
        """
        self._wanted.set()
        if not self._closed:
            await self._wait(timeout_s)
        return self._result()

    async def ask_map(self) -> cluster_pb2.GetTopologyResponse:
        """Ask for the cluster map; the one on which most nodes agree counts.

        The endpoints are asked, and one node of each zone that is known.

        Raises:
            KvorumError: no node answers.
        """
        view = self.view
        known = _one_of_each_zone(view.map, view.zone) if view else ()
        addresses = dict.fromkeys((*self._target.endpoints, *(m.address for m in known)))
        attempts = [partial(self._ask_map_at, address) for address in addresses]
        return choose_map(await successes(attempts, _STAGGER_S))

    async def current_map(self) -> tuple[ClusterMap, bytes]:
        """Ask for the cluster map; return it with its digest. No namespace is needed for it.

        Raises:
            InvalidArgumentError: the token would travel in plain text beyond this machine.
            KvorumError: no node answers.
        """
        answer = await self.ask_map()
        cluster_map = parse_map(answer)
        self._check_private(cluster_map)
        return cluster_map, answer.map_digest

    async def close(self) -> None:
        """End the work in the background; who waits for it is told."""
        self.view = None
        self.error = UnavailableError("the client was closed during the call")
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        async with self._attempted:
            self._attempted.notify_all()

    async def _wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s), self._attempted:
                await self._attempted.wait()
        except TimeoutError:
            return

    def _result(self) -> View:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            raise InternalError("the client's background work failed") from self._task.exception()
        if self.view is not None:
            return self.view
        raise self.error or DeadlineError("the cluster was not found in time", field="endpoints")

    # ------------------------------------------------------------ in the background

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep())
            group.create_task(self._probe(group))

    async def _keep(self) -> None:
        backoff_s = self._settings.backoff_min_s
        while True:
            self._wanted.clear()
            try:
                self.view = await self._find()
                self.error = None
                backoff_s = self._settings.backoff_min_s
            except KvorumError as error:
                self._note(error)
                backoff_s = min(backoff_s * 2, self._settings.backoff_max_s)
            async with self._attempted:
                self._attempted.notify_all()
            # Never more often than the backoff, whatever the nodes say.
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311  # a jitter
            await self._until_wanted()

    async def _until_wanted(self) -> None:
        if self.error is not None:
            return
        try:
            async with asyncio.timeout(_REFRESH_S):
                await self._wanted.wait()
        except TimeoutError:
            return

    def _note(self, error: KvorumError) -> None:
        if self.error is None or type(error) is not type(self.error):
            _log.warning("cluster not usable namespace=%s error=%s", self._target.namespace, error)
        self.error = error
        if isinstance(error, _IN_VAIN):
            self.view = None  # denied, deleted or made anew for another model

    async def _find(self) -> View:
        self._stats.topology_refreshes += 1
        cluster_map, map_digest = await self.current_map()
        namespace = await self._open_namespace(cluster_map, map_digest)
        check_namespace(namespace, self._target.fingerprint)
        await self._adopt(cluster_map)
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

    def _check_private(self, cluster_map: ClusterMap) -> None:
        far = [member for member in cluster_map.members if not member.is_loopback]
        if self._target.loopback_only and far:
            raise InvalidArgumentError(
                f"the token would travel to {far[0].address} in plain text",
                field="tls",
                limit="loopback addresses, or tls",
            )

    async def _ask_map_at(self, address: str) -> cluster_pb2.GetTopologyResponse:
        link = self._caller.pool.link(address)
        return await self._caller.anonymous(
            address,
            link.cluster.GetTopology,
            cluster_pb2.GetTopologyRequest(context=request_context(b"")),
            self._settings.call_deadline_s,
        )

    async def _adopt(self, cluster_map: ClusterMap) -> None:
        addresses = [member.address for member in cluster_map.members]
        await self._caller.pool.keep_only((*addresses, *self._target.endpoints))
        self._caller.health.keep_only(member.name for member in cluster_map.members)
        for address in addresses:
            self._caller.pool.link(address).warm()

    async def _open_namespace(
        self, cluster_map: ClusterMap, map_digest: bytes
    ) -> namespace_pb2.Namespace:
        members = _one_of_each_zone(cluster_map, self._target.zone)
        context = request_context(map_digest)
        get = namespace_pb2.GetNamespaceRequest(context=context, name=self._target.namespace)
        try:
            return await first_success(
                [partial(self._get_namespace, member, get) for member in members], _STAGGER_S
            )
        except NamespaceNotFoundError:
            if not self._target.create:
                raise
        wanted = namespace_pb2.Namespace(
            name=self._target.namespace,
            fingerprint=fingerprint_message(self._target.fingerprint),
            policy=self._target.policy.to_message(),
        )
        make = namespace_pb2.CreateNamespaceRequest(context=context, namespace=wanted)
        return await first_success(
            [partial(self._create_namespace, member, make) for member in members],
            self._settings.call_deadline_s,
        )

    async def _get_namespace(
        self, member: Member, request: namespace_pb2.GetNamespaceRequest
    ) -> namespace_pb2.Namespace:
        link: Link = self._caller.link(member)
        answer = await self._caller.anonymous(
            member.name,
            link.namespaces.GetNamespace,
            request,
            self._settings.call_deadline_s,
        )
        return answer.namespace

    async def _create_namespace(
        self, member: Member, request: namespace_pb2.CreateNamespaceRequest
    ) -> namespace_pb2.Namespace:
        link: Link = self._caller.link(member)
        answer = await self._caller.anonymous(
            member.name,
            link.namespaces.CreateNamespace,
            request,
            self._settings.call_deadline_s,
        )
        return answer.namespace

    async def _probe(self, group: asyncio.TaskGroup) -> None:
        """Ask doubtful nodes whether they live, so that no caller has to."""
        while True:
            await asyncio.sleep(_TICK_S)
            view = self.view
            if view is None:
                continue
            for name in self._caller.health.probes_due(time.monotonic()):
                self._caller.health.of(name).breaker.probe_started()
                group.create_task(self._probe_node(view.map.member(name)))

    async def _probe_node(self, member: Member) -> None:
        health = self._caller.health
        request = cluster_pb2.GetTopologyRequest(context=request_context(b""))
        try:
            answer = await self._caller.anonymous(
                member.name,
                self._caller.link(member).cluster.GetTopology,
                request,
                self._settings.probe_timeout_s,
                wait_for_ready=True,
            )
            health.answered(member.name, answer.answerer)
        except KvorumError as error:
            health.probed(member.name, time.monotonic(), answered=False)
            if isinstance(error, DeadlineError | UnavailableError):
                # Its connections may be black holes that no packet will ever end.
                await self._caller.pool.drop(member.address)
        else:
            health.probed(member.name, time.monotonic(), answered=True)


def _one_of_each_zone(cluster_map: ClusterMap, zone: str | None) -> Sequence[Member]:
    """Return one node of each zone, the own zone first; which one is drawn."""
    shard = random.choice(cluster_map.shards)  # noqa: S311  # spreads load, guards nothing
    return cluster_map.nearest(cluster_map.shard_members(shard), zone)
