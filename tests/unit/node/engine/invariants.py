"""What must hold in an engine after every event, computed anew from what the engine holds."""

from __future__ import annotations

from collections import Counter

from kvorum.core import limits
from kvorum.node.engine import Engine
from kvorum.node.engine.allocator import granule_bytes
from kvorum.node.engine.entries import Entry
from kvorum.node.engine.events import Extent
from kvorum.node.engine.payloads import Payload, index_bytes


def check_invariants(engine: Engine) -> None:
    """Assert that every part of the engine's state agrees with every other."""
    entries = _entries(engine)
    _check_places(engine, entries)
    _check_memory(engine, entries)
    _check_pins(engine, entries)
    _check_candidates(engine, entries)
    _check_counters(engine, entries)


def _entries(engine: Engine) -> list[Entry]:
    """Return all live entries, those of deleted namespaces included."""
    state = engine._state
    named = [entry for one in state.namespaces.live() for entry in one.entries.values()]
    buried = [entry for grave in state.store._graves for entry in grave if entry.live]
    assert len(set(named + buried)) == len(named) + len(buried) == state.store.blocks
    for namespace in state.namespaces.live():
        assert not namespace.gone
        for key, entry in namespace.entries.items():
            assert entry.live
            assert entry.key == key
            assert entry.namespace is namespace
    return named + buried


def _check_places(engine: Engine, entries: list[Entry]) -> None:
    """The trees: links go both ways, stay inside the segment, and no orphan has a parent here."""
    for entry in entries:
        for child in entry.children:
            assert child.live
            assert child.above is entry
        if entry.above is not None:
            above = entry.above
            assert above.live
            assert entry in above.children
            assert above.key == entry.parent
            assert above.index == entry.index - 1
            assert not entry.namespace.first_in_segment(entry.index)
            assert (entry.used, -entry.depth) <= (above.used, -above.depth)
        orphan = entry.above is None and entry.depth > 0
        assert (entry in entry.namespace.orphans.get(entry.parent, ())) == orphan
        assert not orphan or entry.parent not in entry.namespace.entries
    for namespace in engine._state.namespaces.live():
        for waiting in namespace.orphans.values():
            assert waiting
            assert all(one.live for one in waiting)


def _check_memory(engine: Engine, entries: list[Entry]) -> None:
    """Every taken extent has one owner; sums agree; bounds hold."""
    state = engine._state
    draining = _draining(engine)
    staged = _staged(engine)
    owned = [extent for entry in entries for extent in entry.payload.extents]
    owned += [extent for payload in draining for extent in payload.extents]
    owned += staged
    taken = {offset: size for offset, size, free in state.allocator.extents() if not free}
    assert len({extent.offset for extent in owned}) == len(owned)
    assert {extent.offset: granule_bytes(extent.size) for extent in owned} == taken
    assert state.allocator.used_bytes == sum(taken.values()) <= engine.settings.capacity_bytes
    assert state.store.draining_bytes == sum(one.arena_bytes for one in draining)
    assert state.room.staged_bytes == sum(granule_bytes(one.size) for one in staged)
    assert state.room.staged_bytes <= engine.settings.staged_bytes_max
    assert state.room.index_bytes == sum(index_bytes(len(one.frame_sizes)) for one in staged)
    described = [entry.payload for entry in entries] + draining
    assert state.store.index_bytes == sum(one.index_bytes for one in described)
    assert state.store.index_bytes + state.room.index_bytes <= engine.settings.index_bytes_max
    for namespace in state.namespaces.live():
        bytes_used = sum(one.payload.arena_bytes for one in namespace.entries.values())
        assert namespace.used_bytes == bytes_used
    for entry in entries:
        assert entry.payload.attached
        assert len(entry.payload.extents) == entry.namespace.parts
        assert all(state.store.owner(one.offset) is entry for one in entry.payload.extents)
    assert len(state.store._owners) == sum(len(entry.payload.extents) for entry in entries)


def _draining(engine: Engine) -> list[Payload]:
    tickets = engine._reads._tickets.values()
    return list({one.payload for one in tickets if not one.payload.attached})


def _staged(engine: Engine) -> list[Extent]:
    groups = list(engine._state.staging)
    for group in groups:
        assert group.parts or group.open, "a group of nothing"
        assert set(group.parts) < set(range(group.item.parts)), "a complete group that waits"
    staged = [extent for group in groups for extent in group.parts.values()]
    staged += [ticket.extent for ticket in engine._writes._tickets.values()]
    staged += [one for ticket in engine._replicas._tickets.values() for one in ticket.extents]
    opened = Counter(ticket.group for ticket in engine._writes._tickets.values())
    assert {group: group.open for group in groups if group.open} == dict(opened)
    assert set(engine._state.staging._waiting) == set(groups)
    return staged


def _check_pins(engine: Engine, entries: list[Entry]) -> None:
    """A block's pins are those of itself and of its descendants."""
    weights: Counter[Entry] = Counter()
    for entry in entries:
        if entry.pinned:
            weights.update(entry.line())
    assert {entry: entry.pins for entry in entries if entry.pins} == dict(weights)
    pinned_bytes = sum(entry.payload.arena_bytes for entry in weights)
    assert engine._state.retention.pinned_bytes == pinned_bytes
    assert pinned_bytes <= engine.settings.pinned_bytes_max


def _check_candidates(engine: Engine, entries: list[Entry]) -> None:
    """The policy holds exactly what may go, but for leases that ended since anybody looked."""
    retention, now_ms = engine._state.retention, engine._state.clock.now_ms
    policy, leases = retention._policy, retention._leases
    holds = _holds(engine)
    for entry in entries:
        assert entry.holds == holds[entry]
        free = not entry.children and not entry.pins and not entry.holds
        assert entry.candidate == (entry in policy)
        if free and entry.leased_until_ms > now_ms:
            assert not entry.candidate
            assert entry in leases
        elif free:
            assert entry.candidate or entry in leases
        else:
            assert not entry.candidate
    assert len(policy) == sum(entry.candidate for entry in entries)
    assert all(entry.live for entry in leases)
    assert set(engine._state.store._expiry) <= set(entries)


def _holds(engine: Engine) -> Counter[Entry]:
    holds: Counter[Entry] = Counter()
    for read in engine._reads._tickets.values():
        holds[read.entry] += 1
        assert read.payload.readers > 0
    for group in engine._state.staging:
        holds.update(group.held)
    for replica in engine._replicas._tickets.values():
        holds.update(replica.held)
    return holds


def _check_counters(engine: Engine, entries: list[Entry]) -> None:
    """What came less what went is what is here; misses add up; memories stay bounded."""
    status, settings = engine.status(), engine.settings
    counters = status.counters
    came = counters["stored_blocks"] + counters["replica_blocks"]
    went = sum(
        counters[name]
        for name in (
            "evicted_blocks",
            "expired_blocks",
            "deleted_blocks",
            "corrupt_blocks",
            "unnamed_blocks",
        )
    )
    assert came - went == len(entries)
    assert status.blocks <= len(entries)
    misses = status.lookup_misses + counters["read_misses"]
    assert sum(status.misses.values()) == misses
    assert status.history_blocks <= settings.history_blocks_max
    assert status.tombstones <= settings.tombstones_max
    assert status.open_reads <= settings.open_reads_max
    assert len(engine._state.namespaces.live()) <= limits.NAMESPACES_MAX
    for namespace in engine._state.namespaces.live():
        for key in namespace.entries:
            assert namespace.tag + key not in engine._state.history._reasons
