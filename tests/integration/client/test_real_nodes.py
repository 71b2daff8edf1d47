"""Real node processes, killed and stopped by signal in the middle of lookups, fetches and stores.

Goal: no wrong byte, no call far past its deadline, and the work goes on in the other zones.
Method: three zones of real nodes; threads store, look up and fetch without a pause while the
client's own zone is killed or stopped, and comes back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from kvorum.cli import LocalCluster, LocalSettings
from kvorum.client import Client, ClientSettings, NamespacePolicy
from tests.integration.support.clusters import MIB
from tests.integration.support.prompts import PATIENCE_S, Prompt, same_kv
from tests.integration.support.settling import eventually
from tests.integration.support.values import TENSORS

T = TypeVar("T")

SETTINGS = ClientSettings(
    lookup_budget_s=0.25, fetch_deadline_s=3.0, store_deadline_s=6.0, stall_s=0.5
)
SLACK_S = 3.0
"""What a busy machine may add to a deadline; the contract is the deadline."""

BLOCKS = 6
VICTIM = "kvorum-a-0"


@pytest.fixture
def nodes() -> Iterator[LocalCluster]:
    """A cluster that a test may hurt."""
    with LocalCluster(LocalSettings(zones=3, memory_bytes=64 * MIB)) as running:
        yield running


def open_client(nodes: LocalCluster, zone: str) -> Client:
    return Client(
        nodes.endpoints,
        namespace="real",
        fingerprint=TENSORS,
        zone=zone,
        policy=NamespacePolicy(replicas=3),
        settings=SETTINGS,
    )


@dataclass
class Worker:
    """One thread that stores, looks up and fetches until told to end."""

    client: Client
    old: list[Prompt]
    end: threading.Event
    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    full: int = 0
    stored: int = 0

    def run(self) -> None:
        """Work; whatever is wrong is noted, and nothing may raise."""
        number = 0
        while not self.end.is_set():
            number += 1
            prompt = self.old[number % len(self.old)]
            hit = self._timed("lookup", SETTINGS.lookup_budget_s, self.client.lookup, prompt.tokens)
            fetched = self._timed("fetch", SETTINGS.fetch_deadline_s, self.client.fetch, hit)
            if not same_kv(fetched, prompt):
                self.wrong.append(f"{number}: {fetched!r}")
            self.full += fetched.tokens == len(prompt.tokens)
            new = Prompt.draw(2, id(self) % 1_000, number)
            result = self._timed(
                "store", SETTINGS.store_deadline_s, self.client.store, new.tokens, new.kv
            )
            self.stored += bool(result)

    def _timed(self, what: str, deadline_s: float, call: Callable[..., T], *args: object) -> T:
        started = time.monotonic()
        result = call(*args)
        took = time.monotonic() - started
        if took > deadline_s + SLACK_S:
            self.late.append(f"{what} took {took:.1f} s")
        return result


def further(workers: list[Worker], what: str) -> None:
    """Wait until every worker had two whole hits and two stores more than now."""
    goals = [(worker.full + 2, worker.stored + 2) for worker in workers]
    eventually(
        lambda: [(worker.full, worker.stored) for worker in workers],
        what,
        holds=lambda now: all(
            full >= goal[0] and stored >= goal[1]
            for (full, stored), goal in zip(now, goals, strict=True)
        ),
        deadline_s=40.0,
    )


@pytest.mark.parametrize("harm", ["kill -9", "SIGSTOP"])
def test_a_zone_is_lost_under_load_and_comes_back(nodes: LocalCluster, harm: str) -> None:
    with open_client(nodes, "a") as near, open_client(nodes, "b") as far:
        for client in (near, far):
            client.connect(PATIENCE_S)
        prompts = [Prompt.draw(BLOCKS, 5, at) for at in range(8)]
        for prompt in prompts:
            assert near.store(prompt.tokens, prompt.kv, deadline_s=PATIENCE_S).stored == BLOCKS
        eventually(
            lambda: [len(s.zones) for p in prompts for s in near.stat(p.tokens)],
            "every block is in three zones",
            holds=lambda counts: min(counts) == 3,
        )
        end = threading.Event()
        workers = [Worker(client, prompts, end) for client in (near, near, far)]
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        further(workers, "work is under way")
        (nodes.kill if harm == "kill -9" else nodes.pause)(VICTIM)
        further(workers, "hits are served and stores are taken without the zone")
        (nodes.restart if harm == "kill -9" else nodes.resume)(VICTIM)
        further(workers, "work goes on with the zone")
        end.set()
        for thread in threads:
            thread.join(SETTINGS.store_deadline_s + PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads)
        for worker in workers:
            assert worker.wrong == []
            assert worker.late == []
        eventually(
            lambda: near.stat(prompts[0].tokens)[0].reason is None and near.status()[0].reachable,
            "the node is used again",
        )
