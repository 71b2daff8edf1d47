"""The public API of the client as a type checker sees it. Checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import torch

from kvorum.client import (
    AsyncClient,
    BlockStat,
    Client,
    ClientSettings,
    ClientStats,
    Fetched,
    Fingerprint,
    Hit,
    LocatedBlock,
    MissReason,
    NamespacePolicy,
    NodeStatus,
    StoreResult,
    Tls,
    Topology,
)
from kvorum.core.errors import KvorumError


def builds_clients(fingerprint: Fingerprint) -> Client:
    """Every argument by name, and as few as there can be."""
    Client("127.0.0.1:1", namespace="n", fingerprint=fingerprint)
    AsyncClient(("127.0.0.1:1", "127.0.0.1:2"), namespace="n", fingerprint=fingerprint)
    return Client(
        ["127.0.0.1:1"],
        namespace="n",
        fingerprint=fingerprint,
        zone="a",
        token=None,
        tls=Tls.from_files(ca="ca.pem", cert="cert.pem", key="key.pem"),
        policy=NamespacePolicy(replicas=3, ttl_s=60),
        create=False,
        part=1,
        writer="engine-1",
        settings=ClientSettings(lookup_budget_s=0.002),
    )


def takes_no_fingerprint() -> None:
    """A fingerprint and a namespace must be given, and a part is a number."""
    Client("127.0.0.1:1", namespace="n")  # type: ignore[call-arg]
    Client("127.0.0.1:1", namespace="n", fingerprint={}, part="0")  # type: ignore[arg-type]


def looks_up(client: Client, tensor: torch.Tensor, array: npt.NDArray[np.int64]) -> Hit:
    """Token ids come as lists, arrays and tensors."""
    client.lookup(tensor, budget_s=0.01)
    client.lookup(array)
    client.lookup(range(100), lease_s=5)
    client.lookup("text")  # type: ignore[arg-type]
    hit = client.lookup([1, 2, 3])
    assert_type(hit, Hit)
    assert_type(hit.tokens, int)
    assert_type(hit.blocks, tuple[LocatedBlock, ...])
    assert_type(hit.reason, MissReason | None)
    assert_type(hit.lease_until, float | None)
    return hit


def fetches(client: Client, hit: Hit, tensor: torch.Tensor) -> None:
    """Bytes go into arrays, tensors and buffers that can be written."""
    client.fetch(hit, into=tensor, deadline_s=1, layers=(0, 2))
    client.fetch(hit, into=np.zeros((2, 2)))
    client.fetch(hit, into=bytearray(10))
    client.fetch(hit, into=memoryview(bytearray(10)))
    client.fetch(hit, into=7)  # type: ignore[arg-type]
    fetched = client.fetch(hit)
    assert_type(fetched, Fetched)
    assert_type(fetched.kv, npt.NDArray[Any] | None)
    assert_type(fetched.blocks, list[memoryview])
    assert_type(fetched.bytes_by_zone, dict[str, int])


def stores(client: Client, tensor: torch.Tensor) -> None:
    """KV comes as one array or tensor, or as a buffer for each block."""
    client.store([1], tensor, first_block=1, overwrite=True, deadline_s=2)
    client.store([1], np.zeros((2, 2)))
    client.store([1], [b"block", bytearray(3), memoryview(b"x")])
    client.store([1], None)  # type: ignore[arg-type]
    result = client.store([1], [tensor, tensor])
    assert_type(result, StoreResult)
    assert_type(result.stored, int)
    assert_type(result.errors, list[KvorumError])
    assert_type(result.zones, tuple[str, ...])


def keeps(client: Client, hit: Hit) -> None:
    """Everything else."""
    assert_type(client.delete([1]), int)
    assert_type(client.touch(hit), int)
    assert_type(client.pin([1]), int)
    assert_type(client.unpin([1]), int)
    assert_type(client.stat([1]), list[BlockStat])
    assert_type(client.topology(), Topology)
    assert_type(client.topology().slots_by_shard, Mapping[int, int])
    assert_type(client.status(), list[NodeStatus])
    assert_type(client.stats, ClientStats)
    with client as opened:
        assert_type(opened, Client)


async def awaits(client: AsyncClient) -> None:
    """The asynchronous client has the same methods."""
    async with client as opened:
        assert_type(opened, AsyncClient)
        await client.connect(timeout_s=1)
        hit = await client.lookup([1])
        assert_type(hit, Hit)
        assert_type(await client.fetch(hit), Fetched)
        assert_type(await client.store([1], [b"x"]), StoreResult)
        assert_type(await client.delete([1]), int)
        assert_type(await client.touch(hit, lease_s=1), int)
        assert_type(await client.stat([1]), list[BlockStat])
        assert_type(await client.status(), list[NodeStatus])
