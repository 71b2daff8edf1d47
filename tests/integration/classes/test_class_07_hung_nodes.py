"""Bug class 7, hung is not dead: a node that neither answers nor dies harms nobody else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from kvorum.client import Client, Hit, NamespacePolicy
from kvorum.placement import Member
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import START_S, ProxiedCluster
from tests.integration.support.prompts import PATIENCE_S, Prompt, load, same_kv, store
from tests.integration.support.proxy import BlackHole
from tests.integration.support.settling import eventually
from tests.integration.support.wire import Wire

HUNG = "kvorum-b-0"
PROMPTS = 24
DEADLINE_S = 3.0
SLACK_S = 5.0
"""What a busy machine may add to a deadline; the contract is the deadline."""

Hang = Callable[[ProxiedCluster], AbstractContextManager[None]]


def stopped(proxied: ProxiedCluster) -> Iterator[None]:
    """SIGSTOP: the kernel still takes connections, and nothing answers."""
    proxied.processes[HUNG].pause()
    try:
        yield
    finally:
        proxied.processes[HUNG].resume()


def swallowed(proxied: ProxiedCluster) -> Iterator[None]:
    """A black hole: the network takes every byte and brings none."""
    proxied.proxies[HUNG].arm(BlackHole())
    try:
        yield
    finally:
        proxied.proxies[HUNG].heal()


def killed(proxied: ProxiedCluster) -> Iterator[None]:
    """SIGKILL, for comparison: a node that is dead is the easier case."""
    proxied.processes[HUNG].kill()
    try:
        yield
    finally:
        proxied.processes[HUNG].start()
        proxied.processes[HUNG].wait_ready(time.monotonic() + START_S)


both_ways = pytest.mark.parametrize(
    "hang", [contextmanager(stopped), contextmanager(swallowed)], ids=["SIGSTOP", "black hole"]
)


any_way = pytest.mark.parametrize(
    "hang",
    [contextmanager(stopped), contextmanager(swallowed), contextmanager(killed)],
    ids=["SIGSTOP", "black hole", "SIGKILL"],
)


def holders(proxied: ProxiedCluster, hit: Hit, replicas: int) -> tuple[Member, ...]:
    """Return the members that hold a prompt of one segment."""
    return proxied.file.map.replicas(hit.blocks[0].slot, replicas)


def stored_prompts(client: Client, seed: int) -> list[Prompt]:
    """Store prompts and wait until every one is in both its zones."""
    prompts = [Prompt.draw(3, seed, i) for i in range(PROMPTS)]
    for prompt in prompts:
        store(client, prompt)
        eventually(
            lambda: [len(s.zones) for s in client.stat(prompt.tokens)],  # noqa: B023  # used at once
            "both replicas hold it",
            holds=lambda zones: min(zones) == 2,
        )
    return prompts


def within_deadline(client: Client, prompt: Prompt) -> bool:
    """Look up and fetch by a deadline; whether all of it came, and it may be nothing else."""
    begin = time.monotonic()
    hit = client.lookup(prompt.tokens, budget_s=DEADLINE_S)
    assert time.monotonic() - begin < DEADLINE_S + SLACK_S
    begin = time.monotonic()
    fetched = client.fetch(hit, deadline_s=DEADLINE_S)
    assert time.monotonic() - begin < DEADLINE_S + SLACK_S
    assert fetched.tokens == 0 or same_kv(fetched, prompt)
    return fetched.tokens == len(prompt.tokens)


@any_way
def test_a_hung_node_costs_no_hits(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int, hang: Hang
) -> None:
    """Goal: keys elsewhere are unaffected, keys of the hung node fail over inside the deadline.

    Method: store prompts with two replicas each, so that a third of them does not concern the
    hung node at all; hang it; every prompt is found and fetched, whole and right, by clients of
    all three zones; those that do not concern it lose not even a call.
    """
    client = connect(proxied.endpoints, name, policy=NamespacePolicy(replicas=2))
    prompts = stored_prompts(client, seed)
    hits = [client.lookup(prompt.tokens, budget_s=PATIENCE_S) for prompt in prompts]
    concerned = [HUNG in {member.name for member in holders(proxied, hit, 2)} for hit in hits]
    assert any(concerned)
    assert not all(concerned)
    readers = [connect(proxied.endpoints, name, zone=zone, create=False) for zone in "abc"]
    for reader in readers:
        assert same_kv(load(reader, prompts[0].tokens), prompts[0])

    with hang(proxied):
        for reader in readers:
            assert [within_deadline(reader, prompt) for prompt in prompts] == [True] * PROMPTS
        for number in range(4):
            begin = time.monotonic()
            late = Prompt.draw(3, seed, PROMPTS + number)
            result = client.store(late.tokens, late.kv, deadline_s=DEADLINE_S)
            assert time.monotonic() - begin < DEADLINE_S + SLACK_S
            assert (result.stored, result.refused) == (3, 0)

    fresh = Prompt.draw(3, seed, 2 * PROMPTS)
    store(client, fresh)
    for reader in readers:
        assert same_kv(load(reader, fresh.tokens), fresh)


@both_ways
def test_a_key_that_only_the_hung_node_holds_comes_back_by_itself(
    proxied: ProxiedCluster, connect: Connect, name: str, seed: int, hang: Hang
) -> None:
    """Goal: a load that failed on an idle system resolves without a restart or other traffic.

    Method: with one replica, prompts of the hung node miss, inside the deadline and with a reason;
    after it goes on, the same client finds them again.
    """
    client = connect(proxied.endpoints, name, policy=NamespacePolicy(replicas=1))
    prompts = [Prompt.draw(2, seed, i) for i in range(PROMPTS)]
    for prompt in prompts:
        store(client, prompt)
    hits = [client.lookup(prompt.tokens, budget_s=PATIENCE_S) for prompt in prompts]
    lone = next(
        prompt
        for prompt, hit in zip(prompts, hits, strict=True)
        if holders(proxied, hit, 1)[0].name == HUNG
    )

    with hang(proxied):
        begin = time.monotonic()
        missed = client.lookup(lone.tokens, budget_s=DEADLINE_S)
        assert time.monotonic() - begin < DEADLINE_S + SLACK_S
        assert missed.tokens == 0
        assert missed.reason is not None
        assert missed.reason.name in {"NODE_DOWN", "TIMEOUT"}

    fetched = eventually(lambda: load(client, lone.tokens), "the prompt is found again")
    assert same_kv(fetched, lone)


@any_way
def test_the_others_say_who_is_down_and_who_is_back(proxied: ProxiedCluster, hang: Hang) -> None:
    """Goal: operators see a hung node as down, in bounded time. Method: ask another node."""
    with Wire(proxied.endpoints[0]) as wire:

        def state() -> int:
            return next(m.state for m in wire.topology().members if m.name == HUNG)

        up, down = 1, 2
        eventually(state, "it is up", holds=lambda seen: seen == up)
        with hang(proxied):
            eventually(state, "it counts as down", holds=lambda seen: seen == down)
        eventually(state, "it is back", holds=lambda seen: seen == up)
