"""Replicas that took different groups end with the same one, whatever the order of arrival."""

from __future__ import annotations

from collections import deque
from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.errors import FingerprintError, NamespaceNotFoundError
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import (
    ApplyNamespace,
    BeginReplica,
    BeginWrite,
    CommitReplica,
    CommitWrite,
    Condition,
    EndRead,
    NamespaceId,
    Outcome,
    Policy,
    ReplicaBlock,
    ReplicaGrant,
    Replicate,
    WriteGrant,
)
from kvorum.node.engine.payloads import rank
from tests.unit.node.engine.invariants import check_invariants
from tests.unit.node.engine.prompts import PAGE, fingerprint, item, key_of, record, slot

SPACE = NamespaceId("t", "chat")
NODES = 3


class Shard:
    """Three engines and the pipes between them; a block is read when it is sent."""

    def __init__(self) -> None:
        self.engines = [Engine(EngineSettings(capacity_bytes=32 * PAGE)) for _ in range(NODES)]
        for engine in self.engines:
            engine.handle(ApplyNamespace(record("chat")), 0)
        self.pipes: dict[tuple[int, int], deque[Replicate]] = {
            (source, target): deque() for source, target in permutations(range(NODES), 2)
        }

    def store(self, node: int, content: int, condition: Condition, now_ms: int) -> None:
        # Writers of odd contents agree to the bit, so that nodes store one group at two times.
        writer = "w" if content % 2 else f"w{node}"
        one = item("a", frame_crc32c=(content,))
        event = BeginWrite(SPACE, fingerprint().digest(), writer, condition, (one,))
        (answer,), _ = self.engines[node].handle(event, now_ms)
        if isinstance(answer, WriteGrant):
            _, effects = self.engines[node].handle(CommitWrite(answer.id), now_ms)
            for effect in effects:
                assert isinstance(effect, Replicate)
                for target in range(NODES):
                    if target != node:
                        self.pipes[node, target].append(effect)

    def deliver(self, source: int, target: int, now_ms: int) -> None:
        effect = self.pipes[source, target].popleft()
        snapshot = self.engines[source].snapshot(effect.namespace, effect.key, now_ms)
        assert snapshot is not None
        answer, _ = self.engines[target].handle(BeginReplica(snapshot.block), now_ms)
        if isinstance(answer, ReplicaGrant):
            answer, _ = self.engines[target].handle(CommitReplica(answer.id), now_ms)
        assert isinstance(answer, Outcome)
        self.engines[source].handle(EndRead(snapshot.grant_id), now_ms)

    def versions(self) -> set[tuple[int, int, bool]]:
        found = set()
        for engine in self.engines:
            snapshot = engine.snapshot(SPACE, key_of("a"), 0)
            assert snapshot is not None
            found.add((snapshot.block.group, snapshot.block.clock, snapshot.block.overwrite))
            engine.handle(EndRead(snapshot.grant_id), 0)
        return found


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.integers(0, NODES - 1),
            st.integers(1, 4),
            st.sampled_from([Condition.IF_ABSENT, Condition.OVERWRITE]),
        ),
        st.permutations(range(NODES)).map(lambda order: (order[0], order[1], None)),
    ),
    max_size=40,
)


@given(STEPS, st.randoms(use_true_random=False), st.integers(0, 3))
def test_replicas_converge(
    steps: list[tuple[int, int, Condition | None]],
    draws: Random,
    skew_ms: int,
) -> None:
    """Method: stores on any of three nodes whose clocks differ, interleaved with deliveries; then
    everything that is still under way, in any order that keeps each pipe's own."""
    shard = Shard()
    for now_ms, (first, second, condition) in enumerate(steps):
        if condition is not None:
            shard.store(first, second, condition, now_ms + first * skew_ms)
        elif shard.pipes[first, second]:
            shard.deliver(first, second, now_ms)
    while open_pipes := [ends for ends, pipe in shard.pipes.items() if pipe]:
        source, target = draws.choice(open_pipes)
        shard.deliver(source, target, len(steps))
    for engine in shard.engines:
        check_invariants(engine)
    if any(condition is not None for _, _, condition in steps):
        assert len(shard.versions()) == 1


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 5), st.integers(1, 5)), min_size=1, unique=True
    )
)
def test_the_order_of_versions_is_total(versions: list[tuple[bool, int, int]]) -> None:
    """Goal: one winner among any set, or three replicas could chase each other for ever."""
    ranks = [rank(group, clock, overwrite=overwrite) for overwrite, clock, group in versions]
    assert len(set(ranks)) == len(ranks)
    winner = versions[ranks.index(max(ranks))]
    if any(overwrite for overwrite, _, _ in versions):
        assert winner == max(one for one in versions if one[0])
    else:
        assert winner == min(versions)


def block(**changes: object) -> ReplicaBlock:
    values: dict[str, object] = {
        "namespace": SPACE,
        "fingerprint_digest": fingerprint().digest(),
        "key": key_of("a"),
        "parent": key_of(""),
        "index": 0,
        "slot": slot("a"),
        "group": 1,
        "clock": 1 << 16,
        "stored_ms": 1,
        "overwrite": False,
        "frame_sizes": ((PAGE,),),
        "frame_crc32c": ((1,),),
    }
    return ReplicaBlock(**(values | changes))  # type: ignore[arg-type]


def test_what_is_no_block_of_the_namespace_is_refused_and_takes_no_memory() -> None:
    engine = Engine(EngineSettings(capacity_bytes=4 * PAGE))
    engine.handle(ApplyNamespace(record("chat")), 0)
    refused = {
        "namespace": (block(namespace=NamespaceId("t", "other")), NamespaceNotFoundError),
        "fingerprint": (block(fingerprint_digest=b"\0" * 64), FingerprintError),
        "parts": (block(frame_sizes=((1,), (1,)), frame_crc32c=((1,), (1,))), FingerprintError),
    }
    for offered, error in refused.values():
        answer, _ = engine.handle(BeginReplica(offered), 1)
        assert type(answer) is error
    status = engine.status()
    assert (status.used_bytes, status.counters["replica_refused"]) == (0, len(refused))


def test_a_block_of_parts_that_do_not_all_fit_takes_no_memory() -> None:
    engine = Engine(EngineSettings(capacity_bytes=4 * PAGE, staged_bytes_max=4 * PAGE))
    engine.handle(ApplyNamespace(record("chat", 3)), 0)
    offered = block(
        fingerprint_digest=fingerprint(3).digest(),
        frame_sizes=((PAGE,), (2 * PAGE,), (2 * PAGE,)),
        frame_crc32c=((1,), (2,), (3,)),
    )
    answer, _ = engine.handle(BeginReplica(offered), 1)
    assert not isinstance(answer, ReplicaGrant | Outcome)
    assert engine.status().used_bytes == 0
    check_invariants(engine)


def test_a_block_older_than_the_namespace_keeps_is_not_stored() -> None:
    engine = Engine(EngineSettings(capacity_bytes=4 * PAGE))
    engine.handle(ApplyNamespace(record("chat", policy=Policy(2, ttl_ms=1_000))), 0)
    answer, _ = engine.handle(BeginReplica(block(stored_ms=1)), 1_001)
    assert answer is Outcome.ALREADY_STORED
    answer, _ = engine.handle(BeginReplica(block(stored_ms=2)), 1_001)
    assert isinstance(answer, ReplicaGrant)
