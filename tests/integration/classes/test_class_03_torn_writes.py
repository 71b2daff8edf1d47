"""Bug class 3, torn write visible: a writer may die at any byte, and nothing of it is ever seen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from kvorum.cli import LocalCluster
from kvorum.client import NamespacePolicy
from kvorum.core.errors import UnavailableError
from kvorum.v1 import cache_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.parked_writer import Torn, first_bytes, parked
from tests.integration.support.prompts import Prompt, load, same_kv, store
from tests.integration.support.proxy import Cut, Direction, Proxies
from tests.integration.support.settling import eventually
from tests.integration.support.values import OPAQUE, TENSORS, draw_bytes, generator, marked
from tests.integration.support.wire import Block, Scope, Wire, put_messages, typed

SIZE = 300_000
STORED = cache_pb2.PUT_OUTCOME_STORED


def offsets(seed: int, count: int) -> list[int]:
    """Return bytes at which writers die: the edges, and `count` others."""
    edges = [0, 1, 4095, 4096, 4097, SIZE // 2, SIZE - 1]
    return edges + [int(at) for at in generator(seed).integers(2, SIZE - 1, count)]


def memory(wire: Wire) -> tuple[int, int]:
    """Return the arena bytes in use, and those of unfinished stores."""
    state = wire.status()
    return state.used_bytes, state.staged_bytes


def absent(wire: Wire, scope: Scope, blocks: list[Block]) -> bool:
    """Whether no lookup, get or stat shows any of the blocks."""
    looked = [wire.lookup(scope, [block.key]).present_blocks for block in blocks]
    read = [len(got.data) for got in wire.get_blocks(scope, blocks)]
    known = [stat.size_bytes for stat in wire.stat(scope, blocks)]
    return not any((*looked, *read, *known))


def test_a_writer_that_is_killed_leaves_nothing(wire: Wire, name: str, seed: int) -> None:
    """Goal: SIGKILL at any byte: lookups miss, memory comes back, the next store succeeds at once.

    Method: a real process opens many stores, each of which stops at another byte; when the node
    holds their bytes, and shows none, the process is killed.
    """
    scope = wire.create(name, OPAQUE)
    before = memory(wire)
    stores = [
        Torn(generator(seed, i).bytes(64).hex(), SIZE, sent, seed + i)
        for i, sent in enumerate(offsets(seed, 16))
    ]
    blocks = [store.block(scope) for store in stores]
    with parked(wire.address, scope, stores) as writer:
        eventually(
            lambda: memory(wire)[1],
            "all but one of the stores brought bytes",
            holds=lambda staged: staged >= (len(stores) - 1) * SIZE,
        )
        assert absent(wire, scope, blocks)
        os.kill(writer.pid, signal.SIGKILL)

    eventually(lambda: memory(wire), "memory comes back", holds=lambda now: now == before)
    assert absent(wire, scope, blocks)
    assert {result.outcome for result in wire.put(scope, blocks)} == {STORED}
    assert [bytes(got.data) for got in wire.get_blocks(scope, blocks)] == [
        block.payload for block in blocks
    ]


def test_a_connection_that_breaks_at_any_byte_leaves_nothing(
    wire: Wire, name: str, seed: int
) -> None:
    """Goal: the same when the network cuts in the middle of a frame.

    Method: store through a proxy that breaks the connection so many bytes behind a marker in the
    payload; then store again without it.
    """
    scope = wire.create(name, OPAQUE)
    before = memory(wire)[1]
    marker = draw_bytes(24, seed)
    with Proxies(int(wire.address.rpartition(":")[2])) as proxies:
        proxy = proxies.all[0]
        for number, after in enumerate([0, 1, 9, 10_000, *offsets(seed, 4)[5:6], SIZE // 2 - 100]):
            block = Block(generator(seed, number).bytes(64), marked(marker, SIZE, seed, number))
            proxy.arm(Cut(Direction.TO_NODE, marker, after))
            with Wire(proxy.address) as cut, pytest.raises(UnavailableError):
                cut.send(put_messages(scope, [block], chunk_bytes=16 << 10))
            assert proxy.trips == 1
            proxy.heal()
            assert absent(wire, scope, [block])
            eventually(lambda: memory(wire)[1], "unfinished", holds=lambda now: now == before)
            assert [result.outcome for result in wire.put(scope, [block])] == [STORED]
            assert bytes(wire.get_blocks(scope, [block])[0].data) == block.payload


def test_a_stream_that_ends_early_is_refused(wire: Wire, name: str, seed: int) -> None:
    """Goal: a writer that ends its stream without all bytes gets a typed refusal for the item.

    Method: of two blocks the second lacks its last byte; the first is stored all the same.
    """
    scope = wire.create(name, OPAQUE)
    whole, short = (
        Block(generator(seed, i).bytes(64), draw_bytes(SIZE, seed, i)) for i in range(2)
    )
    first, second = wire.send(first_bytes(put_messages(scope, [whole, short]), 2 * SIZE - 1))

    assert (first.outcome, second.outcome) == (STORED, cache_pb2.PUT_OUTCOME_REFUSED)
    assert second.error.field
    assert absent(wire, scope, [short])
    assert bytes(wire.get_blocks(scope, [whole])[0].data) == whole.payload


def test_a_cancelled_store_does_not_hinder_the_next(wire: Wire, name: str, seed: int) -> None:
    """Goal: another writer need not wait for one that hangs in the middle of the same block.

    Method: one store stands at half of a block; a second one stores the block; then the first is
    cancelled, and the second one's bytes stay.
    """
    scope = wire.create(name, OPAQUE)
    key = generator(seed).bytes(64)
    half, other = (Block(key, draw_bytes(SIZE, seed, i)) for i in range(2))
    messages = first_bytes(put_messages(scope, [half], chunk_bytes=16 << 10), SIZE // 2)

    def hanging() -> Iterator[cache_pb2.PutRequest]:
        yield from messages
        eventually(call.cancelled, "the store is cancelled")

    with typed(wire.address):
        call = wire.cache.Put.future(hanging(), timeout=60)
        eventually(lambda: memory(wire)[1] >= SIZE, "the first half arrived")
        assert [r.outcome for r in wire.put(scope, [other], writer="other")] == [STORED]
        call.cancel()
    eventually(lambda: memory(wire)[1] == 0, "the cancelled store's memory comes back")
    assert bytes(wire.get_blocks(scope, [other])[0].data) == other.payload


def test_the_next_store_of_a_prompt_succeeds_on_every_zone(
    cluster: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: after a torn store, a whole cluster serves what the next worker stores.

    Method: kill a process in the middle of a store on every node, under the keys of a prompt;
    then store the prompt through the client and read it from each zone.
    """
    prompt = Prompt.draw(3, seed)
    client = connect(cluster.endpoints, name, policy=NamespacePolicy(replicas=3))
    client.connect()
    hit = store(client, prompt)
    assert hit.stored == 3
    keys = [stat.key.hex() for stat in client.stat(prompt.tokens)]
    assert client.delete(prompt.tokens) == 3
    for member in cluster.members:
        torn = [Torn(key, 4096, 2048, seed) for key in keys]
        with parked(member.address, Scope(name, TENSORS), torn):
            assert not load(client, prompt.tokens)

    store(client, prompt)
    for member in cluster.members:
        reader = connect(cluster.endpoints, name, zone=member.zone, create=False)
        assert same_kv(load(reader, prompt.tokens), prompt)
