"""Client: the public API without asyncio; an `AsyncClient` on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kvorum.client.client import AsyncClient
from kvorum.client.nodes import NodeStatus, Topology
from kvorum.client.policy import DEFAULT_POLICY, NamespacePolicy
from kvorum.client.results import BlockStat, Fetched, Hit, StoreResult
from kvorum.client.security import Tls
from kvorum.client.settings import DEFAULT_SETTINGS, ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.tensors import Into, Kv
from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, UnavailableError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import Tokens

_LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")

_START_S: Final = 10.0
_CLOSE_S: Final = 5.0


class _Runner:
    """An event loop in a thread of its own, for one client.

    Args:
        core: the client; it is closed when the loop ends.
    """

    def __init__(self, core: AsyncClient) -> None:
        self._core = core
        self._pid = os.getpid()
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._ended = False
        self._calls: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="kvorum-client", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_S):
            raise UnavailableError("the client's thread did not start", limit=f"{_START_S:g} s")

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        finally:
            with self._lock:
                self._ended = True
            for future, call in list(self._calls.items()):
                future.cancel()  # the loop ended before it came to this one
                call.close()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._ready.set()
        await self._stopping.wait()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._core.close()
                if calls := asyncio.all_tasks() - {asyncio.current_task()}:
                    await asyncio.wait(calls)  # their channels are gone: they end by themselves
        except TimeoutError:
            _LOG.warning("client did not close in time: limit_s=%g", _CLOSE_S)

    def submit(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop.

        Raises:
            UnavailableError: the loop has ended.
        """
        with self._lock:
            if self._ended:
                call.close()
                raise UnavailableError("the client was closed during the call")
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
            self._calls[future] = call
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: Future[Any]) -> None:
        self._calls.pop(future, None)

    def stop(self) -> None:
        """Close the client and end the thread; a forked child has neither."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        if threading.current_thread() is not self._thread:  # where a collector may run this
            self._thread.join(2 * _CLOSE_S)


class Client:
    """One namespace of a cluster, under one fingerprint; see `AsyncClient` for every argument.

    Any thread may call it, and several at once. It does not survive `fork`: in the child every
    call raises, and a new client has to be made. Use it as a context manager or call `close`; a
    client that is forgotten is closed when it is collected, or when the process ends.
    """

    def __init__(  # noqa: PLR0913  # all but one are given by name
        self,
        endpoints: str | Sequence[str],
        *,
        namespace: str,
        fingerprint: Fingerprint,
        zone: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        policy: NamespacePolicy = DEFAULT_POLICY,
        create: bool = True,
        part: int = 0,
        writer: str | None = None,
        settings: ClientSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._core = AsyncClient(
            endpoints,
            namespace=namespace,
            fingerprint=fingerprint,
            zone=zone,
            token=token,
            tls=tls,
            policy=policy,
            create=create,
            part=part,
            writer=writer,
            settings=settings,
        )
        self._pid = os.getpid()
        self._runner = _Runner(self._core)
        # Not `self.close`: a reference to the client would keep it alive for ever.
        self._stop = weakref.finalize(self, self._runner.stop)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's thread; its own deadline bounds the wait."""
        if not self._stop.alive or os.getpid() != self._pid:
            call.close()
            raise InvalidArgumentError(
                "the client is closed, or was made in another process",
                field="client",
                limit="an open one of this process",
            )
        running = self._runner.submit(call)
        try:
            return running.result()
        except CancelledError:
            raise UnavailableError("the client was closed during the call") from None
        finally:
            running.cancel()  # where the wait was interrupted, the call must not go on

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        return self._core.namespace

    @property
    def fingerprint(self) -> Fingerprint:
        """Identity of the computation whose KV this client reads and writes."""
        return self._core.fingerprint

    def connect(self, timeout_s: float = 5.0) -> None:
        """Reach the cluster and open the namespace, or say why that cannot be."""
        self._run(self._core.connect(timeout_s))

    def lookup(
        self,
        tokens: Tokens,
        *,
        budget_s: float | None = None,
        lease_s: float = limits.LEASE_S_DEFAULT,
    ) -> Hit:
        """Find the longest prefix of `tokens` that the cluster holds."""
        return self._run(self._core.lookup(tokens, budget_s=budget_s, lease_s=lease_s))

    def fetch(
        self,
        hit: Hit,
        *,
        into: Into | None = None,
        deadline_s: float | None = None,
        layers: tuple[int, int] | None = None,
    ) -> Fetched:
        """Read the blocks of a hit."""
        return self._run(self._core.fetch(hit, into=into, deadline_s=deadline_s, layers=layers))

    def store(
        self,
        tokens: Tokens,
        kv: Kv,
        *,
        first_block: int = 0,
        overwrite: bool = False,
        deadline_s: float | None = None,
    ) -> StoreResult:
        """Store the KV of the full blocks of `tokens`."""
        return self._run(
            self._core.store(
                tokens, kv, first_block=first_block, overwrite=overwrite, deadline_s=deadline_s
            )
        )

    def delete(self, tokens: Tokens) -> int:
        """Delete the blocks of `tokens`; return how many went."""
        return self._run(self._core.delete(tokens))

    def touch(self, hit: Hit, *, lease_s: float = limits.LEASE_S_DEFAULT) -> int:
        """Mark the blocks of a hit as used and renew their lease; return how many are there."""
        return self._run(self._core.touch(hit, lease_s=lease_s))

    def pin(self, tokens: Tokens) -> int:
        """Keep the blocks of `tokens` from eviction; return how many are pinned."""
        return self._run(self._core.pin(tokens))

    def unpin(self, tokens: Tokens) -> int:
        """End a pin; return how many blocks were there."""
        return self._run(self._core.unpin(tokens))

    def stat(self, tokens: Tokens) -> list[BlockStat]:
        """Describe the blocks of `tokens`."""
        return self._run(self._core.stat(tokens))

    def topology(self) -> Topology:
        """Return the cluster map, freshly asked for."""
        return self._run(self._core.topology())

    def status(self) -> list[NodeStatus]:
        """Return the state of every node, those that do not answer included."""
        return self._run(self._core.status())

    @property
    def stats(self) -> ClientStats:
        """What this client did so far."""
        return self._core.stats

    def close(self) -> None:
        """End the calls under way, those of other threads too, and the client's thread.

        It may be called again; nothing else may be called afterwards.
        """
        self._stop()

    def __enter__(self) -> Self:
        self._run(self._core.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
