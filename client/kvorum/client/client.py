"""AsyncClient: the public API, on asyncio. It checks arguments and delegates."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kvorum.client.nodes import NodeStatus, Topology
from kvorum.client.policy import DEFAULT_POLICY, NamespacePolicy
from kvorum.client.results import BlockStat, Fetched, Hit, StoreResult
from kvorum.client.security import Tls
from kvorum.client.settings import DEFAULT_SETTINGS, ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.tensors import Into, Kv
from kvorum.core import limits
from kvorum.core.errors import UnavailableError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import Tokens


class AsyncClient:
    """One namespace of a cluster, under one fingerprint.

    Attributes:
        namespace: name of the namespace.
        fingerprint: identity of the computation whose KV this client reads and writes.
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
        self.namespace = namespace
        self.fingerprint = fingerprint
        self._stats = ClientStats()
        self._rest = (endpoints, zone, token, tls, policy, create, part, writer, settings)

    async def connect(self, timeout_s: float = 5.0) -> None:
        """Reach the cluster and open the namespace, or say why that cannot be."""
        raise UnavailableError(f"not connected within {timeout_s:g} s")

    async def lookup(
        self,
        tokens: Tokens,
        *,
        budget_s: float | None = None,
        lease_s: float = limits.LEASE_S_DEFAULT,
    ) -> Hit:
        """Find the longest prefix of `tokens` that the cluster holds."""
        raise UnavailableError(f"{tokens!r} {budget_s} {lease_s}")

    async def fetch(
        self,
        hit: Hit,
        *,
        into: Into | None = None,
        deadline_s: float | None = None,
        layers: tuple[int, int] | None = None,
    ) -> Fetched:
        """Read the blocks of a hit."""
        raise UnavailableError(f"{hit} {into} {deadline_s} {layers}")

    async def store(
        self,
        tokens: Tokens,
        kv: Kv,
        *,
        first_block: int = 0,
        overwrite: bool = False,
        deadline_s: float | None = None,
    ) -> StoreResult:
        """Store the KV of the full blocks of `tokens`."""
        raise UnavailableError(f"{tokens!r} {kv} {first_block} {overwrite} {deadline_s}")

    async def delete(self, tokens: Tokens) -> int:
        """Delete the blocks of `tokens`; return how many went."""
        raise UnavailableError(f"{tokens!r}")

    async def touch(self, hit: Hit, *, lease_s: float = limits.LEASE_S_DEFAULT) -> int:
        """Mark the blocks of a hit as used and renew their lease; return how many are there."""
        raise UnavailableError(f"{hit} {lease_s}")

    async def pin(self, tokens: Tokens) -> int:
        """Keep the blocks of `tokens` from eviction; return how many are pinned."""
        raise UnavailableError(f"{tokens!r}")

    async def unpin(self, tokens: Tokens) -> int:
        """End a pin; return how many blocks were there."""
        raise UnavailableError(f"{tokens!r}")

    async def stat(self, tokens: Tokens) -> list[BlockStat]:
        """Describe the blocks of `tokens`."""
        raise UnavailableError(f"{tokens!r}")

    async def topology(self) -> Topology:
        """Return the cluster map, freshly asked for."""
        raise UnavailableError("not connected")

    async def status(self) -> list[NodeStatus]:
        """Return the state of every node, those that do not answer included."""
        raise UnavailableError("not connected")

    @property
    def stats(self) -> ClientStats:
        """What this client did so far."""
        return self._stats.snapshot()

    async def close(self) -> None:
        """End everything that this client started; safe to call again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
