"""Rules of the state machine: stores by writers and by peers."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kvorum.core.errors import (
    ArenaFullError,
    InternalError,
    InvalidArgumentError,
    KvorumError,
    NamespaceNotFoundError,
    OverloadedError,
    QuotaError,
)
from kvorum.node.engine.events import (
    AbortReplica,
    AbortWrite,
    BeginReplica,
    BeginWrite,
    CommitReplica,
    CommitWrite,
    Condition,
    Outcome,
    ReplicaBlock,
    ReplicaGrant,
    Replicate,
    WriteGrant,
    WriteReply,
)
from tests.unit.node.engine.machine import (
    NAME,
    PARTS,
    PROMPT,
    WORD,
    Machine,
    OpenReplica,
    OpenWrite,
)
from tests.unit.node.engine.model import Model, Seen
from tests.unit.node.engine.prompts import PAGE, item, key_of, slot, words

CONTENT = st.integers(1, 2)


class WriteRules(Machine):
    """`BeginWrite`, `CommitWrite`, `AbortWrite`."""

    @rule(
        name=NAME,
        word=WORD,
        writer=st.sampled_from("wx"),
        condition=st.sampled_from(Condition),
        part=st.integers(0, 1),
        content=CONTENT,
        pages=st.integers(1, 3),
    )
    def begin_write(  # noqa: PLR0917  # one argument for each thing that hypothesis draws
        self,
        name: str,
        word: str,
        writer: str,
        condition: Condition,
        part: int,
        content: int,
        pages: int,
    ) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        ours = model.find(word, self.now_ms)
        if_group = 0
        if condition is Condition.IF_GROUP:
            if_group = ours.group if ours and content == 1 else 77
        sizes, checksums = (PAGE - 1,) * pages, (content,) * pages
        one = item(word, part % PARTS[name], PARTS[name], sizes, checksums, if_group)
        (answer,) = self.handle(BeginWrite(*self.named(name), writer, condition, (one,)))
        if isinstance(answer, WriteGrant):
            assert not (ours and condition is Condition.IF_ABSENT)
            assert answer.extent.frame_crc32c == checksums
            self.arena.write(answer.extent, word)
            self.writes[answer.id] = OpenWrite(model, word, one, writer, condition, answer.extent)
        elif isinstance(answer, KvorumError):
            if condition is not Condition.IF_GROUP or isinstance(answer, OverloadedError):
                self.check_no_room(answer, name, word, pages)
        elif answer.outcome is Outcome.ALREADY_STORED:
            assert condition is Condition.IF_ABSENT
            self.check_stored_already(model, word, ours, answer)
        else:
            assert (answer.outcome, answer.group) == (Outcome.STAGED, 0)

    @rule(
        name=NAME,
        prompt=PROMPT,
        condition=st.sampled_from([Condition.IF_ABSENT, Condition.OVERWRITE]),
        content=CONTENT,
        pages=st.integers(1, 2),
    )
    def store(self, name: str, prompt: str, condition: Condition, content: int, pages: int) -> None:
        """Store a whole prompt, block by block and part by part."""
        for word in words(prompt):
            for part in range(PARTS[name]):
                before = set(self.writes)
                self.begin_write(name, word, "w", condition, part, content, pages)
                for grant_id in set(self.writes) - before:
                    self.commit(grant_id)

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def commit_write(self, data: st.DataObject) -> None:
        self.commit(data.draw(st.sampled_from(sorted(self.writes))))

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def abort_write(self, data: st.DataObject) -> None:
        grant_id = data.draw(st.sampled_from(sorted(self.writes)))
        used = self.engine.status().used_bytes
        extent = self.writes.pop(grant_id).extent
        self.handle(AbortWrite(grant_id))
        assert self.engine.status().used_bytes <= used - extent.size
        with pytest.raises(InternalError):
            self.handle(AbortWrite(grant_id))

    def commit(self, grant_id: int) -> None:
        """Commit a part, and see what the engine makes of it."""
        write = self.writes.pop(grant_id)
        model, word, condition = write.model, write.word, write.condition
        self.arena.write(write.extent, word)  # the last bytes of the part
        live = self.is_live(model)
        ours = model.find(word, self.now_ms) if live else None
        answer = self.handle(CommitWrite(grant_id))
        if not live:
            assert isinstance(answer, NamespaceNotFoundError)
            return
        name = (word, write.writer, condition, write.item.if_group)
        parts = model.committed.setdefault(name, {})
        parts[write.item.part] = write.item.frame_crc32c
        if isinstance(answer, KvorumError):
            self.check_commit_refused(answer, write, ours)
        elif answer.outcome is Outcome.STORED:
            (effect,) = self.effects
            assert isinstance(effect, Replicate)
            assert (effect.key, effect.slot) == (key_of(word), slot(word))
            assert effect.overwrite == (condition is not Condition.IF_ABSENT)
            seen = Seen(answer.group, effect.clock, effect.overwrite, dict(parts), self.now_ms)
            self.see(model, word, seen)
        elif answer.outcome is Outcome.ALREADY_STORED:
            self.check_stored_already(model, word, ours, answer)
        else:
            assert write.item.parts > 1

    def check_commit_refused(self, error: KvorumError, write: OpenWrite, ours: Seen | None) -> None:
        if isinstance(error, OverloadedError):
            assert ours is not None  # pinned, and the new group is larger
        else:
            assert type(error) is InvalidArgumentError
            assert write.condition is Condition.IF_GROUP
            assert ours is None or ours.group != write.item.if_group

    def check_stored_already(
        self, model: Model, word: str, ours: Seen | None, answer: WriteReply
    ) -> None:
        assert ours is not None
        assert answer.group == ours.group
        model.touch(word, self.now_ms)

    def see(self, model: Model, word: str, block: Seen) -> None:
        """Let a block be visible in the model."""
        old = model.blocks.get(word)
        if old is not None:
            block.pinned, block.leased_until_ms = old.pinned, old.leased_until_ms
            block.held_with = old.held_with
        model.blocks[word] = block
        model.reasons.pop(word, None)
        model.touch(word, self.now_ms)

    def check_no_room(self, error: KvorumError, name: str, word: str, pages: int) -> None:
        """Check that a store was refused for a reason that holds."""
        status = self.engine.status()
        if isinstance(error, ArenaFullError):
            stays = status.pinned_bytes + status.staged_bytes + status.draining_bytes
            # The store itself kept the block that it replaces and the one that it continues.
            kept = {(name, key_of(word)), (name, key_of(word[:-1]))}
            assert self.candidates() <= kept or stays + pages * PAGE > status.arena_bytes
        elif isinstance(error, QuotaError):
            assert name == "one"
            assert self.models[name].policy.quota_bytes > 0
        else:
            assert isinstance(error, OverloadedError)
            assert status.staged_bytes + pages * PAGE > self.engine.settings.staged_bytes_max

    def candidates(self) -> set[tuple[str, bytes]]:
        """Return the blocks that may be evicted now."""
        return {
            (name, key)
            for name in self.models
            for key, entry in self.namespace(name).entries.items()
            if entry.candidate
        }


class ReplicaRules(WriteRules):
    """`BeginReplica`, `CommitReplica`, `AbortReplica`."""

    @rule(
        name=NAME,
        word=WORD,
        group=st.integers(1, 3),
        age_ms=st.integers(-1_000, 30_000),
        overwrite=st.booleans(),
    )
    def begin_replica(self, name: str, word: str, group: int, age_ms: int, overwrite: bool) -> None:
        if name not in self.models:
            return
        model = self.models[name]
        block = ReplicaBlock(
            *self.named(name),
            key=key_of(word),
            parent=key_of(word[:-1]),
            index=len(word) - 1,
            slot=slot(word),
            group=group,
            clock=(self.now_ms - age_ms) << 16,
            stored_ms=self.now_ms - max(age_ms, 0),
            overwrite=overwrite,
            frame_sizes=((PAGE,),) * PARTS[name],
            frame_crc32c=((group,),) * PARTS[name],  # one group has one content
        )
        settled = self.settled(model, word, block)
        answer = self.handle(BeginReplica(block))
        if settled:
            assert answer is Outcome.ALREADY_STORED
        elif isinstance(answer, ReplicaGrant):
            assert len(answer.extents) == PARTS[name]
            self.replicas[answer.id] = OpenReplica(model, word, block, answer.extents)
            for extent in answer.extents:
                self.arena.write(extent, word)
        else:
            assert isinstance(answer, KvorumError)
            self.check_no_room(answer, name, word, PARTS[name])

    @precondition(lambda self: self.replicas)
    @rule(data=st.data())
    def commit_replica(self, data: st.DataObject) -> None:
        grant_id = data.draw(st.sampled_from(sorted(self.replicas)))
        replica = self.replicas.pop(grant_id)
        model, word, block = replica.model, replica.word, replica.block
        for extent in replica.extents:
            self.arena.write(extent, word)
        live = self.is_live(model)
        settled = live and self.settled(model, word, block)
        ours = model.blocks.get(word)
        answer = self.handle(CommitReplica(grant_id))
        assert self.effects == ()
        if not live:
            assert isinstance(answer, NamespaceNotFoundError)
        elif settled:
            assert answer is Outcome.ALREADY_STORED
        elif isinstance(answer, OverloadedError):
            assert ours is not None  # pinned, and the peer's is larger
        else:
            assert answer is Outcome.STORED
            parts = dict(enumerate(block.frame_crc32c))
            seen = Seen(block.group, block.clock, block.overwrite, parts, block.stored_ms)
            self.see(model, word, seen)

    @precondition(lambda self: self.replicas)
    @rule(data=st.data())
    def abort_replica(self, data: st.DataObject) -> None:
        grant_id = data.draw(st.sampled_from(sorted(self.replicas)))
        del self.replicas[grant_id]
        self.handle(AbortReplica(grant_id))

    def settled(self, model: Model, word: str, block: ReplicaBlock) -> bool:
        """Whether the model has no place for a peer's block."""
        ttl_ms = model.policy.ttl_ms
        # In the engine's order: a delete is noted even of a block that is too old.
        deleted = model.deleted(word, block.clock)
        if deleted or (ttl_ms and block.stored_ms + ttl_ms <= self.now_ms):
            return True
        model.find(word, self.now_ms)
        return model.outranks(word, block.group, block.clock, block.overwrite)
