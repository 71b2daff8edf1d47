"""Rules of the state machine: lookups and reads, pins and deletes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kvorum.core.errors import KvorumError, OverloadedError
from kvorum.node.engine.events import (
    ApplyTombstone,
    BeginRead,
    Corrupt,
    Delete,
    EndRead,
    Lookup,
    Miss,
    NamespaceId,
    Pin,
    ReadGrant,
    ReadItem,
    ReplicateTombstone,
    Stat,
    Touch,
)
from tests.unit.node.engine.machine import NAME, PARTS, PROMPT, WORD, Machine, OpenRead
from tests.unit.node.engine.model import Model
from tests.unit.node.engine.prompts import SEGMENT, key_of, slot, words

LEASE_MS = st.sampled_from([0, 5_000])


class ReadRules(Machine):
    """`Lookup`, `Touch`, `BeginRead`, `EndRead`, `Corrupt` and snapshots."""

    @rule(name=NAME, prompt=PROMPT, lease_ms=LEASE_MS, owned=st.integers(0, 3))
    def lookup(self, name: str, prompt: str, lease_ms: int, owned: int) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        flags = tuple(bool(owned >> index // SEGMENT & 1) for index in range(len(prompt)))
        expected: list[Miss | None] = []
        for start in range(0, len(prompt), SEGMENT):
            segment = words(prompt)[start : start + SEGMENT]
            if flags[start]:
                expected += model.walk(segment, self.now_ms)
            else:
                expected += [Miss.STALE_EPOCH] * len(segment)
        keys = tuple(key_of(word) for word in words(prompt))
        reply = self.handle(Lookup(*self.named(name), keys, flags, lease_ms))
        assert [view.miss for view in reply.blocks] == expected
        gaps = [index for index, miss in enumerate(expected) if miss is not None]
        assert reply.present == (gaps[0] if gaps else len(prompt))
        self.asked += sum(flags)
        found = [word for word, miss in zip(words(prompt), expected, strict=True) if miss is None]
        for word in found:
            assert reply.blocks[len(word) - 1].group == model.blocks[word].group
        self.use(model, found, lease_ms, reply.lease_until_ms)

    @rule(name=NAME, word=WORD, lease_ms=LEASE_MS)
    def touch(self, name: str, word: str, lease_ms: int) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        seen = model.find(word, self.now_ms)
        (miss,), until_ms = self.handle(Touch(*self.named(name), (key_of(word),), lease_ms))
        assert miss == (model.reason(word) if seen is None else None)
        self.use(model, [word] if seen else [], lease_ms, until_ms)

    def use(self, model: Model, found: list[str], lease_ms: int, until_ms: int | None) -> None:
        """Count a use of blocks and lease them, and check what was promised."""
        for word in found:
            model.touch(word, self.now_ms)
        if not found or not lease_ms:
            assert until_ms is None
            return
        ends = [model.expires_ms(word) for word in found]
        assert until_ms == min([self.now_ms + lease_ms, *(end for end in ends if end)])
        for word in found:
            block = model.blocks[word]
            block.leased_until_ms = max(block.leased_until_ms, self.now_ms + lease_ms)

    @rule(name=NAME, word=WORD, part=st.integers(0, 2), any_group=st.booleans())
    def begin_read(self, name: str, word: str, part: int, any_group: bool) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        seen = model.find(word, self.now_ms)
        one = ReadItem(key_of(word), part, 0 if any_group else 2)
        (answer,) = self.handle(BeginRead(*self.named(name), (one,)))
        if seen is None:
            assert answer is model.reason(word)
        elif part >= PARTS[name]:
            assert answer is Miss.FINGERPRINT
        elif one.group not in (0, seen.group):
            assert answer is Miss.INVALIDATED
        else:
            assert isinstance(answer, ReadGrant)
            assert answer.group == seen.group
            assert answer.extent.frame_crc32c == seen.parts[part]
            model.touch(word, self.now_ms)
            self.reads[answer.id] = OpenRead(model, word, answer.group, (answer.extent,))
            seen.held_with.add(answer.id)

    @rule(name=NAME, word=WORD)
    def snapshot(self, name: str, word: str) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        seen = model.find(word, self.now_ms)
        snapshot = self.engine.snapshot(NamespaceId("t", name), key_of(word), self.now_ms)
        assert (snapshot is None) == (seen is None)
        if snapshot is None or seen is None:
            return
        assert dict(enumerate(snapshot.block.frame_crc32c)) == seen.parts
        assert (snapshot.block.group, snapshot.block.clock) == (seen.group, seen.clock)
        assert snapshot.block.overwrite == seen.overwrite
        self.reads[snapshot.grant_id] = OpenRead(model, word, seen.group, snapshot.extents)
        seen.held_with.add(snapshot.grant_id)

    @precondition(lambda self: self.reads)
    @rule(data=st.data(), corrupt=st.integers(0, 3))
    def end_read(self, data: st.DataObject, corrupt: int) -> None:
        grant_id = data.draw(st.sampled_from(sorted(self.reads)))
        read = self.reads[grant_id]
        if corrupt == 0:
            seen = read.model.blocks.get(read.word)
            before = self.engine.status().counters["corrupt_blocks"]
            self.handle(Corrupt(grant_id))
            went = self.engine.status().counters["corrupt_blocks"] - before
            if went:
                assert seen is not None
                assert grant_id in seen.held_with
                assert seen.group == read.group
                assert len(read.model.drop(read.word, Miss.CHECKSUM)) == went
            self.open_grants_keep_their_bytes()
        del self.reads[grant_id]
        self.handle(EndRead(grant_id))


class KeepingRules(Machine):
    """`Pin`, `Delete`, `ApplyTombstone` and `Stat`."""

    @rule(name=NAME, word=WORD, pinned=st.sampled_from([True, True, False]))
    def pin(self, name: str, word: str, pinned: bool) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        model.find(word, self.now_ms)
        before = self.engine.status().pinned_bytes
        answer = self.handle(Pin(*self.named(name), (key_of(word),), pinned))
        if isinstance(answer, KvorumError):
            assert isinstance(answer, OverloadedError)
            assert pinned
            assert self.engine.status().pinned_bytes == before
            return
        assert (answer[0] is None) == model.reachable(word)
        if answer[0] is None:
            model.blocks[word].pinned = pinned

    @rule(name=NAME, word=WORD)
    def delete(self, name: str, word: str) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        seen = model.find(word, self.now_ms)
        gone: list[str] = []
        for root in [word] if seen else model.children(word):
            gone += model.drop(root, Miss.INVALIDATED)
        (count,) = self.handle(Delete(*self.named(name), (key_of(word),), (slot(word),)))
        assert count == len(gone)
        deleted = {word, *gone}
        assert len(self.effects) == len(deleted)
        for effect in self.effects:
            assert isinstance(effect, ReplicateTombstone)
        assert {effect.key for effect in self.effects} == {key_of(one) for one in deleted}
        model.tombstones |= dict.fromkeys(deleted, self.effects[0].clock)

    @rule(name=NAME, word=WORD, age_ms=st.integers(-1_000, 30_000))
    def tombstone(self, name: str, word: str, age_ms: int) -> None:
        if name not in self.models:
            return
        model, clock = self.models[name], (self.now_ms - age_ms) << 16
        model.tombstones[word] = max(clock, model.tombstones.get(word, 0))
        for root in [word] if word in model.blocks else model.children(word):
            if model.blocks[root].clock <= clock:
                model.drop(root, Miss.INVALIDATED)
        self.handle(ApplyTombstone(NamespaceId("t", name), key_of(word), clock))
        assert self.effects == ()

    @rule(name=NAME, word=WORD)
    def stat(self, name: str, word: str) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        seen = model.find(word, self.now_ms)
        (info,) = self.handle(Stat(*self.named(name), (key_of(word),)))
        if seen is None:
            assert info.miss is model.reason(word)
            return
        assert info.miss is None
        assert (info.group, info.parts) == (seen.group, PARTS[name])
        assert info.age_ms == self.now_ms - seen.stored_ms
        assert info.idle_ms == self.now_ms - seen.used_ms
        assert info.lease_ms == max(0, seen.leased_until_ms - self.now_ms)
