"""The engine's state, put together: one object for each thing that has to be kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvorum.node.engine.allocator import Allocator
from kvorum.node.engine.clock import Clock
from kvorum.node.engine.counters import Counters
from kvorum.node.engine.events import Effect
from kvorum.node.engine.eviction import POLICIES
from kvorum.node.engine.history import History, Tombstones
from kvorum.node.engine.namespaces import Namespaces
from kvorum.node.engine.retention import Retention
from kvorum.node.engine.room import Room
from kvorum.node.engine.settings import EngineSettings
from kvorum.node.engine.staging import Staging
from kvorum.node.engine.store import Store


@dataclass(slots=True)
class State:
    """What the handlers of events share.

    Attributes:
        settings: the bounds.
        clock: when the present event happens.
        counters: what was counted.
        namespaces: which namespaces exist.
        allocator: which bytes of the arena are taken.
        history: why absent blocks are absent.
        tombstones: which blocks were deleted, and when.
        retention: which blocks may be evicted.
        store: the visible blocks.
        room: memory for parts on their way.
        staging: the groups that these parts make up.
        grant_ids: numbers for grants; none comes twice.
        effects: what the driver must carry out for the present event.
    """

    settings: EngineSettings
    clock: Clock = field(init=False)
    counters: Counters = field(init=False)
    namespaces: Namespaces = field(init=False)
    allocator: Allocator = field(init=False)
    history: History = field(init=False)
    tombstones: Tombstones = field(init=False)
    retention: Retention = field(init=False)
    store: Store = field(init=False)
    room: Room = field(init=False)
    staging: Staging = field(init=False)
    grant_ids: Iterator[int] = field(init=False)
    effects: list[Effect] = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.clock = clock = Clock(settings.clock_ahead_ms_max)
        self.counters = counters = Counters()
        self.namespaces = Namespaces()
        self.allocator = allocator = Allocator(settings.capacity_bytes)
        self.history = history = History(settings.history_blocks_max)
        self.tombstones = Tombstones(settings.tombstones_max, settings.tombstone_ttl_ms, clock)
        policy = POLICIES[settings.eviction]()
        self.retention = retention = Retention(policy, clock, counters, settings.pinned_bytes_max)
        self.store = store = Store(allocator, retention, history, clock, counters)
        self.room = Room(settings, allocator, retention, store, clock, counters)
        self.staging = Staging(self.room, retention, clock, counters, settings.staged_ttl_ms)
        self.grant_ids = itertools.count(1)
        self.effects = []
