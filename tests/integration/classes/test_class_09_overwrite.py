"""Bug class 9, overwrite semantics: a second value is refused or replaces, never mixes."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

from kvorum.cli import LocalCluster
from kvorum.client import NamespacePolicy, StoreOutcome
from kvorum.v1 import cache_pb2, common_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.parked_writer import Torn, parked
from tests.integration.support.prompts import PATIENCE_S, Prompt, load, same_kv, store
from tests.integration.support.settling import eventually
from tests.integration.support.values import OPAQUE, TENSORS, draw_bytes, generator
from tests.integration.support.wire import Block, Scope, Wire, put_messages

STORED = cache_pb2.PUT_OUTCOME_STORED
ALREADY_STORED = cache_pb2.PUT_OUTCOME_ALREADY_STORED
OVERWRITE = cache_pb2.PUT_CONDITION_OVERWRITE
IF_GROUP = cache_pb2.PUT_CONDITION_IF_GROUP
LARGE = 2_500_000
VERSIONS = 24
RACES = 24


def read(wire: Wire, scope: Scope, block: Block) -> bytes:
    """Return the bytes that are stored under the block's key."""
    return bytes(wire.get_blocks(scope, [block])[0].data)


def test_another_group_is_already_stored(wire: Wire, name: str, seed: int) -> None:
    """Goal: the first group stays, and the second writer is told. Method: store other bytes."""
    scope = wire.create(name, OPAQUE)
    key = draw_bytes(64, seed)
    first, second = (Block(key, draw_bytes(50_000, seed, i)) for i in range(2))
    [stored] = wire.put(scope, [first], writer="one")
    [again] = wire.put(scope, [second], writer="two")
    [same] = wire.put(scope, [first], writer="one")

    assert [r.outcome for r in (stored, again, same)] == [STORED, ALREADY_STORED, ALREADY_STORED]
    assert stored.group == again.group == same.group != 0
    assert read(wire, scope, first) == first.payload


def test_overwrite_and_if_group(wire: Wire, name: str, seed: int) -> None:
    """Goal: an overwrite replaces; a conditional one only what its writer saw.

    Method: overwrite, then try with a group that is no longer there, then with the present one.
    """
    scope = wire.create(name, OPAQUE)
    key = draw_bytes(64, seed)
    first, second, third = (Block(key, draw_bytes(50_000, seed, i)) for i in range(3))
    [old] = wire.put(scope, [first])
    [new] = wire.put(scope, [second], condition=OVERWRITE)
    assert (new.outcome, new.group != old.group) == (STORED, True)
    assert read(wire, scope, first) == second.payload

    def conditional(group: int) -> cache_pb2.PutResult:
        messages = list(put_messages(scope, [third], condition=IF_GROUP))
        messages[0].open.items[0].if_group = group
        return wire.send(iter(messages))[0]

    stale = conditional(old.group)
    assert stale.outcome in (ALREADY_STORED, cache_pb2.PUT_OUTCOME_REFUSED)
    assert read(wire, scope, first) == second.payload
    assert conditional(new.group).outcome == STORED
    assert read(wire, scope, first) == third.payload


def test_a_reader_that_means_a_replaced_group_gets_no_bytes(
    wire: Wire, name: str, seed: int
) -> None:
    """Goal: ranks that read one group after the other cannot get parts of two.

    Method: overwrite a block, then ask for it by the group of before.
    """
    scope = wire.create(name, OPAQUE)
    key = draw_bytes(64, seed)
    first, second = (Block(key, draw_bytes(50_000, seed, i)) for i in range(2))
    [old] = wire.put(scope, [first])
    [new] = wire.put(scope, [second], condition=OVERWRITE)

    items = [cache_pb2.GetItem(block=first.ref, group=g) for g in (old.group, new.group, 0)]
    gone, present, any_group = wire.get(scope, items)

    assert (gone.miss, bytes(gone.data)) == (common_pb2.MISS_REASON_INVALIDATED, b"")
    assert (present.group, any_group.group) == (new.group, new.group)
    assert bytes(present.data) == bytes(any_group.data) == second.payload


def test_a_reader_never_sees_a_mix(wire: Wire, name: str, seed: int) -> None:
    """Goal: an overwrite is atomic. Method: readers read a block of three frames all the while.

    Every version is one byte repeated, so a mix of two versions shows at once.
    """
    scope = wire.create(name, OPAQUE)
    key = draw_bytes(64, seed)
    versions = [Block(key, bytes((n,)) * LARGE) for n in range(VERSIONS)]
    wire.put(scope, versions[:1])
    done = threading.Event()

    def reads() -> list[tuple[int, int, set[int]]]:
        seen = []
        with Wire(wire.address) as reader:
            while not done.is_set():
                got = reader.get_blocks(scope, versions[:1])[0]
                seen.append((got.miss or got.aborted, len(got.data), set(got.data)))
        return seen

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(reads) for _ in range(2)]
        try:
            for version in versions[1:]:
                [result] = wire.put(scope, [version], condition=OVERWRITE)
                assert result.outcome == STORED
        finally:
            done.set()
        seen = [one for reader in readers for one in reader.result()]

    assert len(seen) > 2
    assert {(miss, size, len(values)) for miss, size, values in seen} == {(0, LARGE, 1)}
    assert read(wire, scope, versions[0]) == versions[-1].payload


def test_a_writer_killed_in_mid_overwrite_leaves_the_old_value(
    wire: Wire, name: str, seed: int
) -> None:
    """Goal: the old value stays readable during the overwrite and after its writer's death.

    Method: a process overwrites blocks, stops at various bytes and is killed.
    """
    scope = wire.create(name, OPAQUE)
    size = 300_000
    sent = [0, 1, size // 3, size - 1]
    keys = [generator(seed, i).bytes(64) for i in range(len(sent))]
    old = [Block(key, draw_bytes(size, seed, i, 0)) for i, key in enumerate(keys)]
    before = wire.put(scope, old)
    used = wire.status().used_bytes
    stores = [Torn(k.hex(), size, at, seed) for k, at in zip(keys, sent, strict=True)]
    with parked(wire.address, scope, stores, OVERWRITE) as writer:
        eventually(lambda: wire.status().staged_bytes >= size, "an overwrite is under way")
        assert [read(wire, scope, block) for block in old] == [b.payload for b in old]
        os.kill(writer.pid, signal.SIGKILL)

    eventually(lambda: wire.status().used_bytes, "memory comes back", holds=lambda now: now == used)
    assert [read(wire, scope, block) for block in old] == [b.payload for b in old]
    groups = [stat.group for stat in wire.stat(scope, old)]
    assert groups == [result.group for result in before]
    new = [Block(key, draw_bytes(size, seed, i, 1)) for i, key in enumerate(keys)]
    assert {r.outcome for r in wire.put(scope, new, condition=OVERWRITE)} == {STORED}
    assert [read(wire, scope, block) for block in old] == [b.payload for b in new]


def test_two_honest_workers_race(
    cluster: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: workers that computed KV with other last bits: one group wins everywhere, none mixes.

    Method: two clients in two zones store the same prompt at the same moment, many times. Every
    read, block by block, equals one of the two; once replication has settled all three replicas
    hold the same group and the same bytes.
    """
    policy = NamespacePolicy(replicas=3)
    clients = [
        connect(cluster.endpoints, name, zone=zone, policy=policy, writer=f"worker-{zone}")
        for zone in "ab"
    ]
    for client in clients:
        client.connect()
    pairs = []
    with ThreadPoolExecutor(2) as pool:
        for number in range(RACES):
            one = Prompt.draw(2, seed, number)
            pair = (one, one.other_kv(seed, number, 1))
            results = list(pool.map(store, clients, pair))
            outcomes = {b.outcome for result in results for b in result.blocks}
            assert outcomes <= {StoreOutcome.STORED, StoreOutcome.ALREADY_STORED}
            assert StoreOutcome.STORED in outcomes
            for client in clients:
                assert_one_of(load(client, one.tokens).blocks, pair)
            pairs.append(pair)

    readers = [connect(cluster.endpoints, name, zone=zone, create=False) for zone in "abc"]
    for pair in pairs:
        seen = eventually(
            lambda: [replica_state(m.address, name, pair[0]) for m in cluster.members],  # noqa: B023
            "all replicas agree",
            holds=lambda states: len(set(states)) == 1 and all(all(s) for s in states[0]),
        )
        assert len(seen) == 3
        contents = [[bytes(b) for b in load(r, pair[0].tokens).blocks] for r in readers]
        assert contents[0] == contents[1] == contents[2]
        assert_one_of(load(readers[0], pair[0].tokens).blocks, pair)


def test_two_overwrites_race(cluster: LocalCluster, connect: Connect, name: str, seed: int) -> None:
    """Goal: replicas that took different overwrites end with the same one, whole.

    Method: two clients in two zones overwrite the same prompt at the same moment, many times; in
    the end all three replicas hold the same group, entirely that of one of the last two.
    """
    policy = NamespacePolicy(replicas=3)
    clients = [
        connect(cluster.endpoints, name, zone=zone, policy=policy, writer=f"worker-{zone}")
        for zone in "bc"
    ]
    one = Prompt.draw(2, seed)
    store(clients[0], one)
    pair = (one, one)
    with ThreadPoolExecutor(2) as pool:
        for number in range(RACES):
            pair = (one.other_kv(seed, number, 1), one.other_kv(seed, number, 2))
            list(pool.map(lambda c, p: store(c, p, overwrite=True), clients, pair))
    eventually(
        lambda: [replica_state(m.address, name, one) for m in cluster.members],
        "all replicas agree",
        holds=lambda states: len(set(states)) == 1,
    )
    readers = [connect(cluster.endpoints, name, zone=zone, create=False) for zone in "abc"]
    contents = [[bytes(b) for b in load(r, one.tokens).blocks] for r in readers]
    assert contents[0] == contents[1] == contents[2]
    assert_one_of(load(readers[0], one.tokens).blocks, pair)


def assert_one_of(blocks: list[memoryview], pair: tuple[Prompt, Prompt]) -> None:
    """Every block is entirely that of one of the two prompts."""
    assert len(blocks) == 2
    for index, block in enumerate(blocks):
        candidates = []
        for prompt in pair:
            kv = prompt.kv[:, :, :, index * 16 : (index + 1) * 16]
            candidates.append(kv.tobytes())
        assert bytes(block) in candidates


def replica_state(address: str, name: str, prompt: Prompt) -> tuple[tuple[int, int], ...]:
    """Return group and digest of every block of a prompt on one node."""
    with Wire(address) as wire:
        scope = wire.open(name, TENSORS)
        blocks = scope.blocks(prompt.tokens, [b"", b""])
        return tuple((stat.group, stat.digest) for stat in wire.stat(scope, blocks))


def test_an_overwrite_reaches_every_replica(
    cluster: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: no replica keeps the old group for ever. Method: overwrite, then read every zone."""
    policy = NamespacePolicy(replicas=3)
    client = connect(cluster.endpoints, name, policy=policy)
    old = Prompt.draw(3, seed)
    new = old.other_kv(seed, 1)
    store(client, old)
    assert client.store(new.tokens, new.kv, deadline_s=PATIENCE_S).already_stored == 3
    assert same_kv(load(client, old.tokens), old)
    assert store(client, new, overwrite=True).stored == 3
    for zone in "abc":
        reader = connect(cluster.endpoints, name, zone=zone, create=False)
        eventually(
            lambda: same_kv(load(reader, new.tokens), new),  # noqa: B023  # used at once
            f"zone {zone} serves the new value",
        )
