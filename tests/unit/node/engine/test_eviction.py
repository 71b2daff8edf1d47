"""Which block goes first, and what a policy of one's own may and may not do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.errors import InternalError
from kvorum.node.engine import Engine, EngineSettings, eviction
from kvorum.node.engine.entries import Entry, Namespace
from kvorum.node.engine.events import Miss, NamespaceId
from kvorum.node.engine.eviction import PrefixLru
from kvorum.node.engine.payloads import Payload
from tests.unit.node.engine.prompts import PAGE, SEGMENT, key_of, record, words
from tests.unit.node.engine.steps import define, lookup, put


def entry(namespace: Namespace, word: str, above: Entry | None = None) -> Entry:
    payload = Payload(1, 1, overwrite=False, stored_ms=0, extents=())
    one = Entry(namespace, key_of(word), key_of(word[:-1]), len(word) - 1, 0, payload)
    one.above = above
    return one


@given(
    st.lists(
        st.tuples(st.sampled_from(["insert", "touch", "remove"]), st.integers(0, 5)), max_size=80
    )
)
def test_the_oldest_goes_first_over_all_namespaces_and_in_each(
    steps: list[tuple[str, int]],
) -> None:
    """Method: six blocks in two namespaces; the least last use of those that are inside."""
    policy = PrefixLru()
    spaces = [Namespace(record(name), serial) for serial, name in enumerate("xy")]
    blocks = [entry(spaces[index % 2], "abcdef"[index]) for index in range(6)]
    inside: set[Entry] = set()
    for stamp, (step, index) in enumerate(steps, start=1):
        one = blocks[index]
        if step == "insert" and one not in inside:
            one.used = one.used or stamp  # it may come back with an old use
            policy.insert(one)
            inside.add(one)
        elif step == "touch" and one in inside:
            one.used = stamp
            policy.touch(one)
        elif step == "remove" and one in inside:
            policy.remove(one)
            inside.discard(one)
        assert len(policy) == len(inside)
        assert all((block in policy) == (block in inside) for block in blocks)
        for scope in (None, *spaces):
            want = [block for block in inside if scope in (None, block.namespace)]
            head = next(policy.victims(scope), None)
            assert (head is None) == (not want)
            assert head is None or head.used == min(block.used for block in want)


def test_an_old_block_that_comes_back_is_the_oldest_of_all_again() -> None:
    policy = PrefixLru()
    mine, other = Namespace(record("x"), 1), Namespace(record("y"), 2)
    oldest, middle, youngest = entry(mine, "a"), entry(other, "b"), entry(mine, "c")
    for used, one in enumerate((oldest, middle, youngest), start=1):
        one.used = used
        policy.insert(one)
    policy.remove(oldest)
    assert next(policy.victims()) is middle
    policy.insert(oldest)
    assert next(policy.victims()) is oldest


def test_at_equal_age_the_deeper_goes_first_and_an_orphan_before_all() -> None:
    policy, space = PrefixLru(), Namespace(record("x"), 1)
    first = entry(space, "a")
    second = entry(space, "aa", above=first)
    orphan = entry(space, "bbb")
    for one in (first, second):
        one.used = 1
        policy.insert(one)
    orphan.used = 100
    policy.insert(orphan)
    order = []
    for victim in policy.victims():
        order.append(victim)
        policy.remove(victim)
    assert order == [orphan, second, first]


def test_an_orphan_that_found_its_predecessor_is_as_young_as_its_use() -> None:
    policy, space = PrefixLru(), Namespace(record("x"), 1)
    old = entry(space, "c")
    old.used = 5
    orphan = entry(space, "bb")
    orphan.used = 9
    policy.insert(orphan)
    policy.insert(old)
    orphan.above = entry(space, "b")
    assert next(policy.victims()) is old


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, SEGMENT)), max_size=40))
def test_a_lookup_never_finds_a_gap_that_eviction_made(uses: list[tuple[str, int]]) -> None:
    """Goal: an evicted block has no block behind it in its segment. Method: prompts that share
    beginnings compete for room for six blocks."""
    engine = Engine(EngineSettings(capacity_bytes=6 * PAGE, staged_bytes_max=PAGE))
    define(engine, "chat")
    for now_ms, (letter, length) in enumerate(uses):
        prompt = "p" + letter * (length - 1)
        for word in words(prompt):
            put(engine, "chat", word, now_ms=now_ms)
        namespace = engine._state.namespaces.get(NamespaceId("t", "chat"))
        for one in namespace.entries.values():
            assert one.reachable
        assert lookup(engine, "chat", prompt, now_ms=now_ms).present == length


class NewestFirst:
    """A policy as a stranger might write it: the most recently inserted candidate goes first."""

    def __init__(self) -> None:
        self._order: list[Entry] = []

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, one: Entry) -> bool:
        return one in self._order

    def insert(self, one: Entry) -> None:
        self._order.append(one)

    def touch(self, one: Entry) -> None:
        pass

    def remove(self, one: Entry) -> None:
        self._order.remove(one)

    def victims(self, namespace: Namespace | None = None) -> Iterator[Entry]:
        while True:
            wanted = [one for one in self._order if namespace in (None, one.namespace)]
            if not wanted:
                return
            yield wanted[-1]


class KeepsNothing(NewestFirst):
    """A policy that is wrong: it names blocks that it was told to let go."""

    def __init__(self) -> None:
        super().__init__()
        self._known: list[Entry] = []

    def insert(self, one: Entry) -> None:
        super().insert(one)
        self._known.append(one)

    def victims(self, namespace: Namespace | None = None) -> Iterator[Entry]:
        assert namespace is None
        yield from self._known


def engine_with(policy: type[NewestFirst], monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(eviction, "POLICIES", {"mine": policy})
    monkeypatch.setattr("kvorum.node.engine.settings.POLICIES", {"mine": policy})
    monkeypatch.setattr("kvorum.node.engine.state.POLICIES", {"mine": policy})
    engine = Engine(EngineSettings(capacity_bytes=3 * PAGE, eviction="mine"))
    define(engine, "chat")
    return engine


def test_a_policy_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(NewestFirst, monkeypatch)
    for word in ("a", "b", "c", "d"):
        put(engine, "chat", word)
    assert lookup(engine, "chat", "c").blocks[0].miss is Miss.EVICTED
    assert lookup(engine, "chat", "a").present == 1


def test_a_wrong_policy_cannot_take_what_must_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(KeepsNothing, monkeypatch)
    for word in ("a", "aa", "b"):
        put(engine, "chat", word)
    answer = put(engine, "chat", "c")  # the policy names "a", which "aa" continues
    assert isinstance(answer, InternalError)
    assert lookup(engine, "chat", "aa").present == 2
