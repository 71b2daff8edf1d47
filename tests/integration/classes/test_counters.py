"""Counters: hit rates can be trusted, because hits and misses add up to the unit."""

from __future__ import annotations

from kvorum.cli import LocalCluster
from kvorum.client import Client, MissReason, NamespacePolicy
from tests.integration.classes.conftest import Connect
from tests.integration.support.prompts import PATIENCE_S, Prompt, store
from tests.integration.support.values import OPAQUE, draw_bytes, generator, with_field
from tests.integration.support.wire import Block, Wire

STEPS = 120
PROMPTS = 12
BLOCKS = 5


def run_workload(client: Client, seed: int) -> tuple[int, int, int]:
    """Store, look up, fetch and delete at random; return lookups, blocks asked and blocks found."""
    draw = generator(seed)
    prompts = [Prompt.draw(BLOCKS, seed, i) for i in range(PROMPTS)]
    lookups = asked = found = 0
    for _ in range(STEPS):
        prompt = prompts[draw.integers(PROMPTS)]
        match draw.choice(["store", "lookup", "lookup", "fetch", "delete"]):
            case "store":
                store(client, prompt)
            case "delete":
                client.delete(prompt.tokens)
            case kind:
                tokens = prompt.tokens[: int(draw.integers(1, len(prompt.tokens) + 1))]
                hit = client.lookup(tokens, budget_s=PATIENCE_S)
                lookups, asked = lookups + 1, asked + len(tokens) // 16
                found += len(hit.blocks)
                if kind == "fetch":
                    client.fetch(hit, deadline_s=PATIENCE_S)
    return lookups, asked, found


def test_a_nodes_hits_and_misses_are_its_lookups(
    single: LocalCluster, connect: Connect, wire: Wire, name: str, seed: int
) -> None:
    """Goal: hits + misses = blocks looked up, to the unit, on the node, its namespace, the client.

    Method: a random workload through one client on one node; compare three books with the tally.
    """
    client = connect(single.endpoints, name)
    client.connect()
    before = wire.status()
    lookups, asked, found = run_workload(client, seed)
    after = wire.status()

    hits = after.lookup_hits - before.lookup_hits
    misses = after.lookup_misses - before.lookup_misses
    assert (hits + misses, hits) == (asked, found)
    [own] = [one for one in after.namespaces if one.name == name]
    assert (own.lookup_hits, own.lookup_misses) == (hits, misses)
    stats = client.stats
    assert stats.lookups == lookups == stats.hits + sum(stats.misses.values())
    assert stats.lookup_blocks == asked
    assert stats.found_blocks == found
    assert stats.found_blocks + sum(stats.missing_blocks.values()) == asked


def test_a_clients_books_balance_on_three_zones(
    cluster: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: the client's numbers add up whatever nodes, hedges and retries did.

    Method: a random workload on three zones; lookups and fetches balance to the unit.
    """
    client = connect(cluster.endpoints, name, policy=NamespacePolicy(replicas=2))
    lookups, asked, found = run_workload(client, seed)
    stats = client.stats
    assert (stats.lookups, stats.lookup_blocks, stats.found_blocks) == (lookups, asked, found)
    assert stats.lookups == stats.hits + sum(stats.misses.values())
    assert stats.lookup_blocks == stats.found_blocks + sum(stats.missing_blocks.values())
    assert stats.fetch_blocks == stats.fetched_blocks + sum(stats.unfetched_blocks.values())
    assert set(stats.missing_blocks) <= {reason.name for reason in MissReason}


def test_misses_are_counted_by_reason(wire: Wire, name: str, seed: int) -> None:
    """Goal: every miss has one reason, and the reasons add up.

    Method: cause misses of three reasons by lookup and by get; compare the growth of each.
    """
    scope = wire.create(name, OPAQUE)
    blocks = [Block(draw_bytes(64, seed, i), draw_bytes(1000, seed, i)) for i in range(3)]
    wire.put(scope, blocks[:2])
    wire.delete(scope, blocks[:1])
    before = wire.status()
    for block in blocks:
        wire.lookup(scope, [block.key])
    wire.get_blocks(scope, blocks)
    wire.lookup(scope.under(with_field("adapter", "lora@1")), [blocks[1].key])
    after = wire.status()

    grown = {
        reason: count - before.misses.get(reason, 0)
        for reason, count in after.misses.items()
        if count != before.misses.get(reason, 0)
    }
    assert grown == {"NEVER_STORED": 2, "INVALIDATED": 2, "FINGERPRINT": 1}
    assert after.lookup_hits - before.lookup_hits == 1
    assert after.lookup_misses - before.lookup_misses == 3
