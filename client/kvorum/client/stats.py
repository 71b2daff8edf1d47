"""ClientStats: what one client did, counted so that the sums can be checked.

Every lookup is either a hit or a miss, so `lookups == hits + sum(misses.values())`; and every full
block that a lookup asked for was found or not, so
`lookup_blocks == found_blocks + sum(missing_blocks.values())`. The same holds for fetches:
`fetch_blocks == fetched_blocks + sum(unfetched_blocks.values())`.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kvorum.client.results import FetchOutcome, Hit, StoredBlock

NO_BLOCK: Final = "NO_BLOCK"
"""Instead of a reason, for prompts that are shorter than a block."""


@dataclass(slots=True)
class ClientStats:
    """Counters since the client was made.

    Attributes:
        lookups: lookups that were answered; those that raised count nowhere.
        hits: lookups that found at least one block.
        misses: lookups that found none, by reason; NO_BLOCK if the prompt had no full block.
        lookup_tokens: tokens of the prompts that were looked up.
        hit_tokens: tokens of the prefixes that were found.
        lookup_blocks: full blocks of those prompts.
        found_blocks: blocks of the prefixes that were found.
        missing_blocks: the other blocks, by the reason that ended their prefix.
        fetches: fetches that were answered.
        fetch_blocks: blocks that fetches asked for.
        fetched_blocks: blocks that fetches delivered.
        unfetched_blocks: the other blocks, by the reason that ended their prefix.
        fetched_bytes_by_zone: payload bytes that came from each zone.
        stores: stores that were answered.
        stored_blocks: blocks by outcome: STORED, ALREADY_STORED, STAGED, REFUSED.
        stored_bytes_by_zone: payload bytes that went to each zone.
        hedges: calls that were also sent to a second replica because the first was slow.
        failovers: calls that were sent to another replica because one failed or fell short.
        corrupt_blocks: blocks whose bytes or headers were not what was announced.
        breaker_opens: times that a node's breaker opened.
        topology_refreshes: times that the cluster map was fetched.
        errors: failed calls to nodes, by class of error.
    """

    lookups: int = 0
    hits: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    lookup_tokens: int = 0
    hit_tokens: int = 0
    lookup_blocks: int = 0
    found_blocks: int = 0
    missing_blocks: Counter[str] = field(default_factory=Counter)
    fetches: int = 0
    fetch_blocks: int = 0
    fetched_blocks: int = 0
    unfetched_blocks: Counter[str] = field(default_factory=Counter)
    fetched_bytes_by_zone: Counter[str] = field(default_factory=Counter)
    stores: int = 0
    stored_blocks: Counter[str] = field(default_factory=Counter)
    stored_bytes_by_zone: Counter[str] = field(default_factory=Counter)
    hedges: int = 0
    failovers: int = 0
    corrupt_blocks: int = 0
    breaker_opens: int = 0
    topology_refreshes: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def count_lookup(self, hit: Hit, tokens: int, blocks: int) -> None:
        """Count one lookup of a prompt of so many tokens and full blocks."""
        reason = hit.reason.name if hit.reason else NO_BLOCK
        found = len(hit.blocks)
        self.lookups += 1
        if found:
            self.hits += 1
        else:
            self.misses[reason] += 1
        self.lookup_tokens += tokens
        self.hit_tokens += hit.tokens
        self.lookup_blocks += blocks
        self.found_blocks += found
        if found < blocks:
            self.missing_blocks[reason] += blocks - found

    def count_fetch(self, blocks: int, outcome: FetchOutcome) -> None:
        """Count one fetch of so many blocks."""
        self.fetches += 1
        self.fetch_blocks += blocks
        self.fetched_blocks += outcome.blocks
        if outcome.reason is not None:
            self.unfetched_blocks[outcome.reason.name] += blocks - outcome.blocks
        self.fetched_bytes_by_zone.update(outcome.bytes_by_zone)

    def count_store(self, blocks: Iterable[StoredBlock]) -> None:
        """Count one store."""
        self.stores += 1
        self.stored_blocks.update(block.outcome.name for block in blocks)

    def snapshot(self) -> ClientStats:
        """Return the counters as they are now."""
        return copy.deepcopy(self)
