"""AsyncClient: the public API, on asyncio. It checks arguments, and delegates."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kvorum.client import arguments
from kvorum.client.destinations import open_destination
from kvorum.client.finder import Target
from kvorum.client.malloc import tune
from kvorum.client.nodes import NodeStatus, Topology
from kvorum.client.operations import Operations, StorePlan
from kvorum.client.policy import DEFAULT_POLICY, NamespacePolicy
from kvorum.client.pool import Pool
from kvorum.client.results import BlockStat, Fetched, Hit, StoreResult
from kvorum.client.security import Tls, call_metadata
from kvorum.client.settings import DEFAULT_SETTINGS, ClientSettings
from kvorum.client.sources import open_source
from kvorum.client.stats import ClientStats
from kvorum.client.tensors import Into, Kv
from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import Tokens, token_array
from kvorum.core.names import check_name


class AsyncClient:
    """One namespace of a cluster, under one fingerprint, for one event loop.

    Lookups, fetches and stores never raise because the cluster is in trouble: they answer with
    less, and say why. What is wrong with an argument raises before anything is sent. The client
    looks for the cluster in the background from its first use on.

    A client belongs to the process and the event loop that first used it: after `fork`, make a
    new one in the child.

    Attributes:
        namespace: name of the namespace.
        fingerprint: identity of the computation whose KV this client reads and writes.

    Args:
        endpoints: host:port of one or more nodes; any of them leads to all.
        namespace: name of the namespace.
        fingerprint: identity of the computation whose KV this client reads and writes.
        zone: the client's own zone, whose nodes are asked first.
        token: the tenant's token; without `tls` it goes to loopback addresses only.
        tls: certificates; None for plain text.
        policy: policy of the namespace if it has to be made.
        create: whether to make the namespace if there is none.
        part: which part of each block this client reads and writes, from 0.
        writer: name of the engine whose ranks' parts belong together, equal for all its ranks;
            required for stores if the fingerprint has several parts.
        settings: deadlines, bounds and thresholds.

    Raises:
        InvalidArgumentError: an argument is malformed or out of its range.
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
        self.namespace = check_name(namespace, "namespace")
        self.fingerprint = arguments.check_fingerprint(fingerprint)
        self._digest = fingerprint.digest()
        self._settings = settings
        self._writer = arguments.check_writer(writer)
        target = Target(
            endpoints=arguments.check_endpoints(endpoints, token=token, tls=tls),
            zone=arguments.check_zone(zone),
            namespace=namespace,
            fingerprint=fingerprint,
            policy=policy,
            create=create,
            loopback_only=token is not None and tls is None,
        )
        self._operations = Operations(
            target,
            arguments.check_part(part, fingerprint),
            Pool(tls, settings.channels_per_node),
            call_metadata(token),
            settings,
        )
        self._closed = False
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _use(self) -> Operations:
        """Return the operations, if the client may be used here.

        Raises:
            InvalidArgumentError: it is closed, or belongs to another process or event loop.
        """
        if self._closed:
            raise InvalidArgumentError("the client is closed", field="client", limit="an open one")
        if os.getpid() != self._pid:
            raise InvalidArgumentError(
                f"the client was made in the process {self._pid}",
                field="client",
                limit="one that this process made",
            )
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            tune()
        if self._loop is not loop:
            raise InvalidArgumentError(
                "the client belongs to another event loop",
                field="client",
                limit="the event loop that used it first",
            )
        return self._operations

    async def connect(self, timeout_s: float = 5.0) -> None:
        """Reach the cluster and open the namespace, or say why that cannot be.

        Args:
            timeout_s: seconds to try for.

        Raises:
            NamespaceNotFoundError: there is no such namespace, and `create` is False.
            NamespaceConflictError: it exists with another fingerprint.
            UnauthenticatedError: the token is none of a tenant.
            PermissionDeniedError: the tenant may not use the namespace.
            ProtocolVersionError: the cluster speaks another version.
            UnavailableError: no node can be reached.
            DeadlineError: the time was too short to know.
        """
        operations = self._use()
        timeout_s = arguments.check_seconds(timeout_s, 0.0, "timeout_s")
        await operations.connect(time.monotonic() + timeout_s)

    async def lookup(
        self,
        tokens: Tokens,
        *,
        budget_s: float | None = None,
        lease_s: float = limits.LEASE_S_DEFAULT,
    ) -> Hit:
        """Find the longest prefix of `tokens` that the cluster holds.

        Never raises because the cluster is in trouble: the hit is then empty or shorter, and has
        a reason. A prompt shorter than a block is a miss without a reason. At most the first
        8,192 blocks are looked up.

        Args:
            tokens: token ids of the prompt: a sequence, array or tensor of integers.
            budget_s: seconds to wait for the cluster at most; None for the setting. Hashing the
                prompt comes on top, about 2 ms for 100,000 tokens.
            lease_s: seconds for which the cluster should keep what was found; 0 for no promise.

        Raises:
            InvalidArgumentError: an argument is malformed or out of its range.
        """
        operations = self._use()
        budget_s = arguments.check_seconds(budget_s, self._settings.lookup_budget_s, "budget_s")
        lease_s = arguments.check_lease(lease_s)
        array = token_array(tokens)
        blocks = array.size // self.fingerprint.block_tokens
        hit = await operations.lookup(array, budget_s, lease_s) if blocks else Hit(0)
        operations.stats.count_lookup(hit, array.size, blocks)
        return hit

    async def fetch(
        self,
        hit: Hit,
        *,
        into: Into | None = None,
        deadline_s: float | None = None,
        layers: tuple[int, int] | None = None,
    ) -> Fetched:
        """Read the blocks of a hit: the contiguous prefix that arrives intact and in time.

        Never raises because the cluster is in trouble: the prefix is then shorter, and has a
        reason. Every byte was checked against its writer's checksums before it counts.

        Args:
            hit: what `lookup` found, here or in another process.
            into: where to put the bytes: an array or tensor [layers, 2, kv_heads, tokens,
                head_size] in the fingerprint's element type with at least the hit's tokens, or one
                writable buffer that takes the blocks one after the other; None for fresh memory.
                Nobody else may use it until the fetch returns.
            deadline_s: seconds that it may take; None for the setting.
            layers: a range of layers (begin, end), which `into` then has; None for all.

        Raises:
            InvalidArgumentError: an argument is malformed, too small or of another type.
        """
        operations = self._use()
        hit = arguments.check_hit(hit, self.namespace, self._digest)
        limit_s = self._settings.fetch_deadline_s
        end = time.monotonic() + arguments.check_seconds(deadline_s, limit_s, "deadline_s")
        layers = arguments.check_layers(layers, self.fingerprint)
        sizes = [block.size_bytes for block in hit.blocks]
        destination = open_destination(into, self.fingerprint, sizes, layers)
        kept = 0
        try:
            outcome = await operations.fetch(hit, destination, layers, end)
            kept = outcome.blocks
        finally:
            destination.finish(kept)
        operations.stats.count_fetch(len(sizes), outcome)
        tokens = kept * self.fingerprint.block_tokens
        return Fetched(tokens, outcome.reason, outcome.bytes_by_zone, destination, kept)

    async def store(
        self,
        tokens: Tokens,
        kv: Kv,
        *,
        first_block: int = 0,
        overwrite: bool = False,
        deadline_s: float | None = None,
    ) -> StoreResult:
        """Store the KV of the full blocks of `tokens`, from `first_block` on.

        Never raises because the cluster is in trouble: the blocks in question are then refused,
        each with its error.

        Args:
            tokens: token ids of the prompt: a sequence, array or tensor of integers.
            kv: the KV of the tokens from the block `first_block` on: an array or tensor [layers, 2,
                kv_heads, tokens, head_size] in the fingerprint's element type, or a sequence of
                buffers, one for each full block. It must not change until the store returns.
            first_block: the first block to store, for example behind a hit.
            overwrite: whether blocks that are there are replaced.
            deadline_s: seconds that it may take; None for the setting.

        Raises:
            InvalidArgumentError: an argument is malformed, too small or of another type.
            TooLargeError: a block is over 64 MiB.
        """
        operations = self._use()
        array = token_array(tokens)
        blocks = array.size // self.fingerprint.block_tokens
        first_block = arguments.check_first_block(first_block, blocks)
        limit_s = self._settings.store_deadline_s
        end = time.monotonic() + arguments.check_seconds(deadline_s, limit_s, "deadline_s")
        source = open_source(kv, self.fingerprint, blocks - first_block)
        writer = arguments.require_writer(self._writer, self.fingerprint)
        plan = StorePlan(array, source, first_block, writer, overwrite=bool(overwrite))
        result = await operations.store(plan, end)
        operations.stats.count_store(result)
        return StoreResult(tuple(result))

    async def delete(self, tokens: Tokens) -> int:
        """Delete the full blocks of `tokens`, and the blocks of their segments that continue them.

        A prompt that begins with the same tokens loses the blocks that it shares.

        Returns:
            How many blocks went.

        Raises:
            InvalidArgumentError: `tokens` is malformed.
            KvorumError: no replica of some block could be told; others may be gone.
        """
        return await self._use().delete(token_array(tokens))

    async def touch(self, hit: Hit, *, lease_s: float = limits.LEASE_S_DEFAULT) -> int:
        """Mark the blocks of a hit as used and renew their lease, at every replica.

        Never raises because the cluster is in trouble.

        Returns:
            How many of the blocks are there.

        Raises:
            InvalidArgumentError: an argument is malformed or out of its range.
        """
        operations = self._use()
        hit = arguments.check_hit(hit, self.namespace, self._digest)
        return await operations.touch(hit, arguments.check_lease(lease_s))

    async def pin(self, tokens: Tokens) -> int:
        """Keep the full blocks of `tokens` from eviction, at every replica that holds them.

        Returns:
            How many of the blocks are pinned somewhere.

        Raises:
            InvalidArgumentError: `tokens` is malformed.
            KvorumError: no replica of some block could be told, or it has too much under pins.
        """
        return await self._use().pin(token_array(tokens), pinned=True)

    async def unpin(self, tokens: Tokens) -> int:
        """End a pin.

        Returns:
            How many of the blocks are there.

        Raises:
            InvalidArgumentError: `tokens` is malformed.
            KvorumError: no replica of some block could be told.
        """
        return await self._use().pin(token_array(tokens), pinned=False)

    async def stat(self, tokens: Tokens) -> list[BlockStat]:
        """Describe the full blocks of `tokens`, without reading or touching them.

        Raises:
            InvalidArgumentError: `tokens` is malformed.
            KvorumError: the cluster is not known, and why.
        """
        return await self._use().stat(token_array(tokens))

    async def topology(self) -> Topology:
        """Return the cluster map, freshly asked for.

        Raises:
            KvorumError: no node answers.
        """
        return await self._use().topology()

    async def status(self) -> list[NodeStatus]:
        """Return the state of every node, those that do not answer included.

        Raises:
            KvorumError: the cluster is not known, and why.
        """
        return await self._use().status()

    @property
    def stats(self) -> ClientStats:
        """What this client did so far."""
        return self._operations.stats.snapshot()

    async def close(self) -> None:
        """End the calls under way and everything else that this client started.

        It may be called again; nothing else may be called afterwards.
        """
        if self._closed:
            return
        self._closed = True
        if self._loop is not None:
            await self._operations.close()

    async def __aenter__(self) -> Self:
        self._use().start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
