"""The pipe to a peer: order, bounds, windows, acknowledgement, reconnection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.engine.events import NamespaceId, Replicate, ReplicateTombstone
from kvorum.node.engine.pipe import Pipe, PipeEntry, PipeLag

SPACE = NamespaceId("t", "n")


def store(key: int, size_bytes: int = 10) -> Replicate:
    return Replicate(SPACE, bytes([key]), 0, 2, 1, size_bytes, overwrite=False)


def tombstone(key: int) -> ReplicateTombstone:
    return ReplicateTombstone(SPACE, bytes([key]), 0, 2, 1)


def sequences(entries: tuple[PipeEntry, ...]) -> list[int]:
    return [entry.sequence for entry in entries]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "push", "bury", "take", "acknowledge", "reconnect"]),
        st.integers(0, 5),
        st.integers(0, 40),
    ),
    max_size=80,
)


class NaivePipe:
    """A pipe of 8 entries and 120 bytes with a window of 3 and 60: a list that is scanned."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, Replicate | ReplicateTombstone]] = []
        self.sent: set[int] = set()
        self.pushed = self.overflowed = self.last_sent = 0

    def bytes(self, *, sent: bool = False) -> int:
        return sum(
            one.size_bytes
            for at, one in self.entries
            if isinstance(one, Replicate) and (at in self.sent or not sent)
        )

    def push(self, effect: Replicate | ReplicateTombstone) -> None:
        self.pushed += 1
        if isinstance(effect, Replicate):
            self.entries = [
                (at, one)
                for at, one in self.entries
                if at in self.sent or not isinstance(one, Replicate) or one.key != effect.key
            ]
        self.entries.append((self.pushed, effect))
        while len(self.entries) > 8 or self.bytes() > 120:
            waiting = [pair for pair in self.entries if pair[0] not in self.sent]
            if not waiting:
                break
            self.entries.remove(waiting[0])
            self.overflowed += 1

    def take(self) -> list[int]:
        taken = []
        for at, one in self.entries:
            size = one.size_bytes if isinstance(one, Replicate) else 0
            if at in self.sent:
                continue
            if len(self.sent) >= 3 or (self.sent and self.bytes(sent=True) + size > 60):
                break
            self.sent.add(at)
            self.last_sent = max(self.last_sent, at)
            taken.append(at)
        return taken

    def acknowledge(self, position: int) -> int:
        before = len(self.entries)
        self.sent = {at for at in self.sent if at > position}
        self.entries = [pair for pair in self.entries if pair[0] > position]
        return before - len(self.entries)

    def reconnect(self) -> None:
        stores = [(at, one) for at, one in self.entries if isinstance(one, Replicate)]
        again = {at for at, one in stores if any(o.key == one.key and a > at for a, o in stores)}
        self.entries = [pair for pair in self.entries if pair[0] not in again]
        self.sent.clear()


@given(STEPS)
def test_random_use_agrees_with_a_naive_list(steps: list[tuple[str, int, int]]) -> None:
    """Goal: nothing is lost but what is counted, nothing is out of order, bounds hold."""
    pipe, naive = Pipe(8, 120, window_entries=3, window_bytes=60), NaivePipe()
    for step, key, number in steps:
        if step in {"push", "bury"}:
            effect = store(key, number) if step == "push" else tombstone(key)
            naive.push(effect)
            assert pipe.push(effect, 0) == naive.pushed
        elif step == "take":
            assert sequences(pipe.take()) == naive.take()
        elif step == "acknowledge" and naive.last_sent:
            position = max(pipe.acknowledged, naive.last_sent - number % 4)
            assert pipe.acknowledge(position) == naive.acknowledge(position)
            assert pipe.acknowledged == position
        elif step == "reconnect":
            pipe.reconnect()
            naive.reconnect()
        assert len(pipe) == len(naive.entries)
        assert pipe.overflowed == naive.overflowed
        assert pipe.lag(0).bytes == naive.bytes()


def test_what_was_not_acknowledged_is_sent_again_in_its_old_place() -> None:
    pipe = Pipe(8, 1_000, window_entries=2)
    for key in range(4):
        pipe.push(store(key), key)
    assert sequences(pipe.take()) == [1, 2]
    pipe.acknowledge(1)
    pipe.reconnect()
    assert sequences(pipe.take()) == [2, 3]
    assert sequences(pipe.take()) == []


def test_overflow_drops_the_oldest_that_is_not_under_way_and_counts_it() -> None:
    pipe = Pipe(3, 1_000, window_entries=1)
    for key in range(3):
        pipe.push(store(key), 0)
    assert sequences(pipe.take()) == [1]
    pipe.push(store(9), 0)
    assert pipe.overflowed == 1
    pipe.acknowledge(1)
    assert sequences(pipe.take()) == [3]


def test_a_block_that_waits_twice_is_sent_once_but_its_tombstone_stays() -> None:
    pipe = Pipe(8, 1_000)
    pipe.push(store(1), 0)
    pipe.push(tombstone(1), 0)
    pipe.push(store(1), 0)
    entries = pipe.take()
    assert sequences(entries) == [2, 3]
    assert isinstance(entries[0].effect, ReplicateTombstone)


def test_a_block_larger_than_the_window_goes_alone() -> None:
    pipe = Pipe(8, 1_000, window_bytes=50)
    pipe.push(store(1, 200), 0)
    pipe.push(store(2, 10), 0)
    assert sequences(pipe.take()) == [1]
    assert sequences(pipe.take()) == []
    pipe.acknowledge(1)
    assert sequences(pipe.take()) == [2]


def test_lag_is_what_the_peer_lacks_and_how_old_the_oldest_is() -> None:
    pipe = Pipe(8, 1_000, window_entries=1)
    assert pipe.lag(5) == PipeLag(0, 0, 0)
    pipe.push(store(1, 7), 100)
    pipe.push(store(2, 8), 200)
    pipe.take()
    assert pipe.lag(250) == PipeLag(2, 15, 150)
    pipe.acknowledge(1)
    assert pipe.lag(250) == PipeLag(1, 8, 50)


def test_refused_entries_are_counted_once_and_only_if_they_were_sent() -> None:
    pipe = Pipe(8, 1_000)
    for key in range(3):
        pipe.push(store(key), 0)
    pipe.take()
    pipe.acknowledge(2, refused=[2, 77])
    pipe.acknowledge(2, refused=[2])
    assert pipe.refused == 1


def test_a_late_acknowledgement_spares_sending_again() -> None:
    pipe = Pipe(8, 1_000)
    for key in range(3):
        pipe.push(store(key), 0)
    pipe.take()
    pipe.reconnect()
    assert pipe.acknowledge(2, refused=[1]) == 2
    assert pipe.refused == 1
    assert sequences(pipe.take()) == [3]


def test_an_acknowledgement_of_what_was_never_sent_is_refused() -> None:
    pipe = Pipe(8, 1_000, window_entries=1)
    pipe.push(store(1), 0)
    pipe.push(store(2), 0)
    pipe.take()
    with pytest.raises(InvalidArgumentError):
        pipe.acknowledge(2)
    assert len(pipe) == 2


@pytest.mark.parametrize(("entries", "size_bytes", "window"), [(4, 0, 1), (4, 100, 0), (0, 100, 1)])
def test_bounds_that_make_no_sense_are_refused(entries: int, size_bytes: int, window: int) -> None:
    with pytest.raises(InvalidArgumentError):
        Pipe(entries, size_bytes, window_entries=window)
