"""The commands of scenarios: each makes an event, and prints its reply and its effects.

A block is a word, as in `tests/unit/node/engine/prompts.py`: "ab" continues "a". An item of a
store is `ab/1*3!7`: block "ab", part 1, 3 pages, content 7; all but the word may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kvorum.core.errors import KvorumError
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import (
    AbortReplica,
    AbortWrite,
    ApplyNamespace,
    ApplyTombstone,
    BeginRead,
    BeginReplica,
    BeginWrite,
    CommitReplica,
    CommitWrite,
    Condition,
    Corrupt,
    Delete,
    EndRead,
    Lookup,
    LookupReply,
    Miss,
    Outcome,
    Pin,
    Policy,
    ReadGrant,
    ReadItem,
    ReplicaBlock,
    ReplicaGrant,
    Stat,
    Tick,
    Touch,
    WriteGrant,
    WriteItem,
    WriteReply,
)
from tests.scenarios.script import Command
from tests.scenarios.stage import START_MS, Stage, clock_number, miss_text, pages
from tests.unit.node.engine.prompts import PAGE, SEGMENT, item, key_of, record, slot, words

_ITEM = re.compile(r"(?P<word>[a-z]+)(/(?P<part>\d+))?(\*(?P<pages>\d+))?(!(?P<content>\d+))?$")


class Commands(Stage):
    """Every command is a method of the same name, with `_` for `-`."""

    def run(self, command: Command) -> list[str]:
        """Run one command and return what it prints."""
        method: Callable[[Command], list[str]] = getattr(
            self, "do_" + command.name.replace("-", "_")
        )
        return method(command)

    # ------------------------------------------------------------ the stage

    def do_engine(self, command: Command) -> list[str]:
        """engine pages=N [staged=PAGES] [pinned=PAGES] [evictions=N]"""
        capacity = command.number("pages", 16)
        self.engine = Engine(
            EngineSettings(
                capacity_bytes=capacity * PAGE,
                staged_bytes_max=command.number("staged", capacity) * PAGE,
                pinned_bytes_max=command.number("pinned") * PAGE,
                evictions_max=command.number("evictions", 8_192),
            )
        )
        return []

    def do_namespace(self, command: Command) -> list[str]:
        """namespace NAME [deleted] [parts=] [replicas=] [ttl=MS] [idle=MS] [quota=PAGES] ..."""
        name = command.arguments[0]
        policy = Policy(
            command.number("replicas", 2),
            command.number("ttl"),
            command.number("idle"),
            command.number("quota") * PAGE,
        )
        self.records[name] = record(
            name,
            command.number("parts", 1),
            policy=policy,
            revision=command.number("revision", 1),
            deleted="deleted" in command.arguments,
            model=command.options.get("model", "m"),
        )
        event = ApplyNamespace(self.records[name])
        return self.handle(event, lambda news: ["news" if news else "known"])

    def do_wait(self, command: Command) -> list[str]:
        """wait MS"""
        self.now_ms += int(command.arguments[0])
        return []

    def do_tick(self, _: Command) -> list[str]:
        """tick"""
        return self.handle(Tick(), lambda _: [])

    def do_status(self, command: Command) -> list[str]:
        """status [COUNTER...]: pages by use, and counters by name"""
        status = self.engine.status()
        values = {
            "blocks": status.blocks,
            "used": status.used_bytes // PAGE,
            "staged": status.staged_bytes // PAGE,
            "pinned": status.pinned_bytes // PAGE,
            "draining": status.draining_bytes // PAGE,
            **{name: status.counters[name] for name in command.arguments},
        }
        return [" ".join(f"{name}={value}" for name, value in values.items())]

    # ------------------------------------------------------------ writing

    def do_begin(self, command: Command) -> list[str]:
        """begin NAMESPACE WRITER CONDITION ITEM...; the condition may be if-group:GROUP"""
        name, writer, condition, *texts = command.arguments
        condition, _, group = condition.partition(":")
        number = self.group_number(group) if group else 0
        items = tuple(self._item(name, text, number) for text in texts)
        event = BeginWrite(
            *self.name(name), writer, Condition[condition.replace("-", "_").upper()], items
        )
        return self.handle(
            event,
            lambda answers: [
                f"{self.word(one.key)}/{one.part}: {self._write_answer(answer, one)}"
                for one, answer in zip(items, answers, strict=True)
            ],
        )

    def do_commit(self, command: Command) -> list[str]:
        """commit GRANT...: the bytes arrived"""
        lines = []
        for text in command.arguments:
            extents, word = self.extents[int(text)]
            for extent in extents:
                self.arena.write(extent, word)
            lines += self.handle(
                CommitWrite(int(text)), lambda answer: [self._write_answer(answer, None)]
            )
        return lines

    def do_put(self, command: Command) -> list[str]:
        """put NAMESPACE WRITER CONDITION ITEM...: begin, and commit what was granted"""
        lines = self.do_begin(command)
        grants = [found[1] for line in lines if (found := re.search(r"grant (\d+)", line))]
        return lines + self.do_commit(Command("commit", tuple(grants)))

    def do_abort(self, command: Command) -> list[str]:
        """abort GRANT [corrupt]: the writer broke off, or its bytes fail their checksum"""
        event = AbortWrite(int(command.arguments[0]), "corrupt" in command.arguments)
        return self.handle(event, lambda _: [])

    # ------------------------------------------------------------ replicas

    def do_replica(self, command: Command) -> list[str]:
        """replica NAMESPACE WORD [overwrite] group=N clock=MS [pages=N] [content=N]"""
        name, word = command.arguments[:2]
        parts = self.records[name].fingerprint.parts
        length = command.number("pages", 1)
        event = BeginReplica(
            ReplicaBlock(
                *self.name(name),
                key=self.key(word),
                parent=key_of(word[:-1]),
                index=len(word) - 1,
                slot=slot(word),
                group=command.number("group"),
                clock=clock_number(command.options["clock"]),
                stored_ms=START_MS + command.number("clock"),
                overwrite="overwrite" in command.arguments,
                frame_sizes=((PAGE,) * length,) * parts,
                frame_crc32c=((command.number("content", 1),) * length,) * parts,
            )
        )
        return self.handle(event, lambda answer: [self._replica_answer(answer, word)])

    def do_commit_replica(self, command: Command) -> list[str]:
        """commit-replica GRANT: the peer's bytes arrived"""
        grant = int(command.arguments[0])
        extents, word = self.extents[grant]
        for extent in extents:
            self.arena.write(extent, word)
        return self.handle(CommitReplica(grant), lambda one: [self._replica_answer(one, word)])

    def do_abort_replica(self, command: Command) -> list[str]:
        """abort-replica GRANT: the peer broke off"""
        return self.handle(AbortReplica(int(command.arguments[0])), lambda _: [])

    def do_tombstone(self, command: Command) -> list[str]:
        """tombstone NAMESPACE WORD clock=MS: a peer deleted a block"""
        name, word = command.arguments
        clock = clock_number(command.options["clock"])
        return self.handle(ApplyTombstone(self.name(name)[0], self.key(word), clock), lambda _: [])

    # ------------------------------------------------------------ reading

    def do_lookup(self, command: Command) -> list[str]:
        """lookup NAMESPACE PROMPT [lease=MS] [elsewhere=SEGMENT]"""
        name, prompt = command.arguments
        keys = tuple(self.key(word) for word in words(prompt))
        elsewhere = command.number("elsewhere", -1)
        owned = tuple(index // SEGMENT != elsewhere for index in range(len(prompt)))
        event = Lookup(*self.name(name), keys, owned, command.number("lease"))

        def show(reply: LookupReply) -> list[str]:
            views = [
                f"{word} {miss_text(view.miss)}{'' if view.miss else ' ' + self.group(view.group)}"
                for word, view in zip(words(prompt), reply.blocks, strict=True)
            ]
            return [f"{reply.present} present{self._lease(reply.lease_until_ms)}", *views]

        return self.handle(event, show)

    def do_read(self, command: Command) -> list[str]:
        """read NAMESPACE WORD/PART[@GROUP]..."""
        name, *texts = command.arguments
        items = []
        for text in texts:
            block, _, group = text.partition("@")
            word, _, part = block.partition("/")
            number = self.group_number(group) if group else 0
            items.append(ReadItem(self.key(word), int(part or 0), number))
        event = BeginRead(*self.name(name), tuple(items))
        return self.handle(
            event,
            lambda answers: [
                f"{text}: {self._read_answer(answer, one)}"
                for text, one, answer in zip(texts, items, answers, strict=True)
            ],
        )

    def do_end(self, command: Command) -> list[str]:
        """end GRANT: the reader is done; prints whether its bytes stayed right"""
        grant = int(command.arguments[0])
        extents, word = self.extents[grant]
        right = all(self.arena.holds(extent, word) for extent in extents)
        return self.handle(EndRead(grant), lambda _: ["bytes right" if right else "BYTES WRONG"])

    def do_corrupt(self, command: Command) -> list[str]:
        """corrupt GRANT: the bytes fail their checksum"""
        return self.handle(Corrupt(int(command.arguments[0])), lambda _: [])

    def do_snapshot(self, command: Command) -> list[str]:
        """snapshot NAMESPACE WORD: read a whole block for a peer"""
        name, word = command.arguments
        snapshot = self.engine.snapshot(self.name(name)[0], self.key(word), self.now_ms)
        if snapshot is None:
            return ["absent"]
        self.extents[snapshot.grant_id] = (snapshot.extents, word)
        where = pages(snapshot.extents)
        return [f"grant {snapshot.grant_id} {where} {self.group(snapshot.block.group)}"]

    # ------------------------------------------------------------ keeping and dropping

    def do_touch(self, command: Command) -> list[str]:
        """touch NAMESPACE WORD... [lease=MS]"""
        name, *texts = command.arguments
        keys = tuple(self.key(word) for word in texts)
        event = Touch(*self.name(name), keys, command.number("lease"))
        return self.handle(
            event,
            lambda reply: [
                *(f"{word} {miss_text(one)}" for word, one in zip(texts, reply[0], strict=True)),
                *([self._lease(reply[1]).lstrip(", ")] if reply[1] else []),
            ],
        )

    def do_pin(self, command: Command) -> list[str]:
        """pin NAMESPACE WORD..."""
        name, *texts = command.arguments
        keys = tuple(self.key(word) for word in texts)
        event = Pin(*self.name(name), keys, command.name == "pin")

        def show(answer: tuple[Miss | None, ...] | KvorumError) -> list[str]:
            if isinstance(answer, KvorumError):
                return [self.refusal(answer)]
            return [f"{word} {miss_text(one)}" for word, one in zip(texts, answer, strict=True)]

        return self.handle(event, show)

    do_unpin = do_pin

    def do_delete(self, command: Command) -> list[str]:
        """delete NAMESPACE WORD..."""
        name, *texts = command.arguments
        keys = tuple(self.key(word) for word in texts)
        event = Delete(*self.name(name), keys, tuple(slot(word) for word in texts))
        return self.handle(event, lambda counts: [f"{sum(counts)} deleted"])

    def do_stat(self, command: Command) -> list[str]:
        """stat NAMESPACE WORD..."""
        name, *texts = command.arguments
        event = Stat(*self.name(name), tuple(self.key(word) for word in texts))
        return self.handle(
            event,
            lambda infos: [
                f"{word} {miss_text(info.miss)}"
                if info.miss
                else f"{word} {self.group(info.group)} age={info.age_ms} idle={info.idle_ms} "
                f"lease={info.lease_ms} pinned={'yes' if info.pinned else 'no'}"
                for word, info in zip(texts, infos, strict=True)
            ],
        )

    # ------------------------------------------------------------ answers as text

    def _item(self, name: str, text: str, if_group: int) -> WriteItem:
        found = _ITEM.match(text)
        assert found is not None, text
        length, content = int(found["pages"] or 1), int(found["content"] or 1)
        one = item(
            found["word"],
            int(found["part"] or 0),
            self.records[name].fingerprint.parts,
            (PAGE,) * length,
            (content,) * length,
            if_group,
        )
        return self.note(one, found["word"])

    def _write_answer(
        self, answer: WriteGrant | WriteReply | KvorumError, one: WriteItem | None
    ) -> str:
        if isinstance(answer, WriteGrant):
            assert one is not None
            self.extents[answer.id] = ((answer.extent,), self.word(one.key))
            return f"grant {answer.id} {pages((answer.extent,))}"
        if isinstance(answer, KvorumError):
            return self.refusal(answer)
        return answer.outcome.name + (f" {self.group(answer.group)}" if answer.group else "")

    def _replica_answer(self, answer: ReplicaGrant | Outcome | KvorumError, word: str) -> str:
        if isinstance(answer, ReplicaGrant):
            self.extents[answer.id] = (answer.extents, word)
            return f"grant {answer.id} {pages(answer.extents)}"
        return self.refusal(answer) if isinstance(answer, KvorumError) else answer.name

    def _read_answer(self, answer: ReadGrant | Miss, one: ReadItem) -> str:
        if isinstance(answer, Miss):
            return answer.name
        self.extents[answer.id] = ((answer.extent,), self.word(one.key))
        return f"grant {answer.id} {pages((answer.extent,))} {self.group(answer.group)}"

    @staticmethod
    def _lease(until_ms: int | None) -> str:
        return "" if until_ms is None else f", leased until {until_ms - START_MS}ms"
