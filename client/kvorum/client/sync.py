"""Client: the public API without asyncio; an `AsyncClient` on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from kvorum.client.client import AsyncClient
from kvorum.client.nodes import NodeStatus, Topology
from kvorum.client.policy import DEFAULT_POLICY, NamespacePolicy
from kvorum.client.results import BlockStat, Fetched, Hit, StoreResult
from kvorum.client.security import Tls
from kvorum.client.settings import DEFAULT_SETTINGS, ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.tensors import Into, Kv
from kvorum.core import limits
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import Tokens

T = TypeVar("T")


class Client:
    """One namespace of a cluster, under one fingerprint; see `AsyncClient` for every method.

    Any thread may call it, and several at once. It does not survive `fork`.
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
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

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
        """End everything that this client started; safe to call again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
