"""Keeper: finds the cluster, opens the namespace, and keeps what the client knows up to date.

It works in the background from the first call on. Calls never wait for it longer than their own
deadline, and not at all once it is known that the cluster cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Final

from kvorum.client.caller import Caller
from kvorum.client.finder import Finder, Target
from kvorum.client.prober import Prober
from kvorum.client.settings import ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.view import View
from kvorum.core.errors import (
    ChecksumError,
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
from kvorum.placement import ClusterMap
from kvorum.v1 import cluster_pb2

_LOG: Final = logging.getLogger(__name__)

_REFRESH_S: Final = 30.0
_OUT_OF_DATE: Final = (MapMismatchError, NotOwnerError, IncarnationError, NamespaceNotFoundError)
_IN_VAIN: Final = (
    NamespaceConflictError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ProtocolVersionError,
    UnauthenticatedError,
    InvalidArgumentError,
)


def is_in_vain(error: KvorumError | None) -> bool:
    """Return whether trying again soon cannot help: somebody has to change something first."""
    return isinstance(error, _IN_VAIN) and not isinstance(error, ChecksumError)


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
        self._finder = Finder(target, caller, settings.call_deadline_s)
        self._prober = Prober(caller, settings.probe_timeout_s)
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
        while self.view is None and not (self._closed or is_in_vain(self.error)):
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
        """Ask for the cluster map.

        Raises:
            KvorumError: no node answers.
        """
        return await self._finder.ask_map(self.view)

    async def current_map(self) -> tuple[ClusterMap, bytes]:
        """Ask for the cluster map; return it with its digest. No namespace is needed for it.

        Raises:
            KvorumError: no node answers, or the client must not talk with them.
        """
        return await self._finder.current_map(self.view)

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
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep())
                await self._prober.run(group, lambda: self.view.map if self.view else None)
        except Exception:
            # Lookups and stores make a miss and a refusal of it, and would hide it.
            _LOG.exception("background work failed: namespace=%s", self._target.namespace)
            raise

    async def _keep(self) -> None:
        backoff_s = self._settings.backoff_min_s
        while True:
            self._wanted.clear()
            try:
                self._stats.topology_refreshes += 1
                view = await self._finder.find(self.view)
                await self._adopt(view.map)
                self.view, self.error = view, None
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
            _LOG.warning("cluster not usable: namespace=%s: %s", self._target.namespace, error)
        self.error = error
        if is_in_vain(error):
            self.view = None  # denied, deleted or made anew for another model

    async def _adopt(self, cluster_map: ClusterMap) -> None:
        addresses = [member.address for member in cluster_map.members]
        await self._caller.pool.keep_only((*addresses, *self._target.endpoints))
        self._caller.health.keep_only(member.name for member in cluster_map.members)
        for address in addresses:
            self._caller.pool.link(address).warm()
