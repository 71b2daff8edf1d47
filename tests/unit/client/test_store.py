"""Goal: a store goes from replica to replica only while blocks are open, and waits only then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvorum.client.results import StoredBlock, StoreOutcome
from kvorum.client.settings import ClientSettings
from kvorum.client.stats import ClientStats
from kvorum.client.store import Store, _Block, _Group, _Job
from kvorum.core.errors import OverloadedError
from kvorum.placement import Member


class Offers(Store):
    """A store that notes whom it asks; each answer is taken from `answers`."""

    def __init__(self, answers: list[bool], down: str = "") -> None:
        nodes = SimpleNamespace(draining_until=0.0)
        health = SimpleNamespace(
            allows=lambda name: name not in down, doubted=lambda _: False, of=lambda _: nodes
        )
        caller = cast("Any", SimpleNamespace(health=health))
        super().__init__(caller, ClientSettings(attempts_max=len(answers) + 1), ClientStats())
        self.answers = answers
        self.steps: list[str] = []

    async def _store_at(self, member: Member, blocks: Sequence[_Block], job: _Job) -> None:  # noqa: ARG002
        self.steps.append(member.name)
        for block in blocks:
            if self.answers[len(self.steps) - 1 - self.steps.count("pause")]:
                block.result = StoredBlock(block.index, StoreOutcome.STORED)
            else:
                block.error = OverloadedError("busy")

    async def _pause(self, group: _Group, attempt: int, job: _Job) -> None:  # noqa: ARG002
        self.steps.append("pause")


@pytest.mark.parametrize(
    ("replicas", "answers", "steps"),
    [
        (1, [True], ["a"]),
        (2, [True], ["a"]),
        (2, [False, True], ["a", "b"]),
        (1, [False, True], ["a", "pause", "a"]),
        (2, [False, False, True], ["a", "b", "pause", "a"]),
    ],
)
async def test_only_a_refusal_by_all_is_waited_out(
    replicas: int, answers: list[bool], steps: list[str]
) -> None:
    members = [Member(zone, zone, 0, f"127.0.0.1:{ord(zone)}") for zone in "ab"]
    group = _Group(tuple(members[:replicas]), [_Block(0, 1)])
    store = Offers(answers)
    job = _Job(cast("Any", None), cast("Any", None), cast("Any", None), time.monotonic() + 60)
    await store._store_group(group, job, asyncio.Semaphore(1))
    assert store.steps == steps
    assert not group.open()


async def test_a_replica_that_is_down_does_not_keep_a_busy_one_from_being_asked_again() -> None:
    members = tuple(Member(zone, zone, 0, f"127.0.0.1:{ord(zone)}") for zone in "ab")
    group = _Group(members, [_Block(0, 1)])
    store = Offers([False, True], down="b")
    job = _Job(cast("Any", None), cast("Any", None), cast("Any", None), time.monotonic() + 60)
    await store._store_group(group, job, asyncio.Semaphore(1))
    assert store.steps == ["a", "pause", "a"]
