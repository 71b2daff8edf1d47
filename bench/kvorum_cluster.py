"""Kvorum as it is measured: a local cluster, and the client over gRPC."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from bench.cases import Case
from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import Client, Fingerprint, Hit, NamespacePolicy

BLOCK_TOKENS: Final = 16
FINGERPRINT: Final = Fingerprint(
    model="kvorum/bench",
    weights_revision="1",
    tokenizer="none",
    adapter="none",
    kv_dtype="uint8",
    layout="opaque",
    layers=1,
    kv_heads=1,
    head_size=1,
    rope="none",
    tp_size=1,
    pp_size=1,
    cp_size=1,
    block_tokens=BLOCK_TOKENS,
    codec_class="lossless",
)
_CALL_S: Final = 30.0


class Kvorum:
    """A client of one namespace; a batch is one chain, a single block a chain of its own."""

    name = "kvorum"

    def __init__(self, pid: int, client: Client) -> None:
        self.pid = pid
        self._client = client
        self._case = Case(0, 0, batch=False)
        self._chains: list[np.ndarray[tuple[int, ...], np.dtype[np.uint32]]] = []
        self._hits: list[Hit] = []

    def prepare(self, case: Case) -> None:
        """Draw chains that were never stored: the put that follows stores every block."""
        self._case = case
        lengths = [case.blocks] if case.batch else [1] * case.blocks
        self._chains = [
            np.frombuffer(secrets.token_bytes(4 * BLOCK_TOKENS * blocks), dtype=np.uint32)
            for blocks in lengths
        ]
        self._hits = []

    def put(self, blocks: Sequence[memoryview]) -> None:
        """Store every block.

        Raises:
            RuntimeError: a block was not stored.
        """
        groups = [blocks] if self._case.batch else [[block] for block in blocks]
        for chain, group in zip(self._chains, groups, strict=True):
            result = self._client.store(chain, group, deadline_s=_CALL_S)
            if result.stored != len(group):
                raise RuntimeError(f"{result.stored} of {len(group)} stored: {result.errors}")

    def look(self) -> None:
        """Look every chain up; `get` reads what was found."""
        # Without leases, which would keep old rounds' blocks from making room.
        self._hits = [
            self._client.lookup(chain, budget_s=_CALL_S, lease_s=0.0) for chain in self._chains
        ]

    def get(self, into: memoryview) -> None:
        """Read what `look` found.

        Raises:
            RuntimeError: a block is missing.
        """
        at = 0
        step = into.nbytes if self._case.batch else self._case.block_bytes
        for hit in self._hits:
            fetched = self._client.fetch(hit, into=into[at : at + step], deadline_s=_CALL_S)
            if fetched.reason is not None:
                raise RuntimeError(f"fetched {fetched}")
            at += step
        if at != into.nbytes:
            raise RuntimeError(f"{at} of {into.nbytes} bytes found")


@contextlib.contextmanager
def kvorum_cluster(zones: int, memory_bytes: int) -> Iterator[Kvorum]:
    """Start a cluster of one shard and yield a client of it."""
    settings = LocalSettings(zones=zones, memory_bytes=memory_bytes)
    with (
        LocalCluster(settings) as cluster,
        Client(
            cluster.endpoints,
            namespace="bench",
            fingerprint=FINGERPRINT,
            zone=cluster.members[0].zone,
            policy=NamespacePolicy(replicas=zones),
        ) as client,
    ):
        client.connect()
        pid = cluster.process(cluster.members[0].name).pid
        assert pid is not None
        yield Kvorum(pid, client)
