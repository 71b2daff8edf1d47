"""Groups of parts: their names, and what it costs to describe them."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from kvorum.core.checksum import crc32c
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import (
    BeginWrite,
    CommitWrite,
    Condition,
    Extent,
    NamespaceId,
    WriteGrant,
)
from kvorum.node.engine.payloads import Payload, group_of
from tests.unit.node.engine.prompts import PAGE, fingerprint, item, key_of
from tests.unit.node.engine.steps import define

BLOCKS = 2_000


@pytest.mark.parametrize("frames", [1, 64])
def test_the_index_is_counted_honestly(frames: int) -> None:
    """Goal: `index_bytes_max` bounds real memory. Method: trace what 2,000 blocks allocate."""
    engine = Engine(EngineSettings(capacity_bytes=2 * BLOCKS * PAGE, index_bytes_max=1 << 40))
    define(engine, "chat")
    name, digest = NamespaceId("t", "chat"), fingerprint().digest()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(BLOCKS):
            prompt = chr(0x1000 + number // 4) + "abc"[: number % 4]
            checksums = tuple(1_000_000 + number * frames + frame for frame in range(frames))
            one = item(prompt, frame_sizes=tuple([8] * frames), frame_crc32c=checksums)
            event = BeginWrite(name, digest, "w", Condition.IF_ABSENT, (one,))
            (grant,), _ = engine.handle(event, 0)
            assert isinstance(grant, WriteGrant)
            engine.handle(CommitWrite(grant.id), 0)
            del one, checksums, event, grant
        gc.collect()
        spent = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = engine.status().index_bytes
    assert 0.8 * counted < spent < 1.2 * counted


def test_a_group_is_named_by_block_writer_and_every_checksum() -> None:
    """Goal: equal on all nodes for one group, different for any other, whatever lies where."""
    parts = (Extent(0, (4, 4), (1, 2)), Extent(PAGE, (4,), (3,)))
    name = group_of(key_of("a"), "w", parts)
    moved = (Extent(5 * PAGE, (4, 4), (1, 2)), Extent(9 * PAGE, (4,), (3,)))
    assert group_of(key_of("a"), "w", moved) == name
    assert name == 0x20B7D42BAE23FA12
    others = {
        group_of(key_of("b"), "w", parts),
        group_of(key_of("a"), "x", parts),
        group_of(key_of("a"), "w", parts[::-1]),
        group_of(key_of("a"), "w", (Extent(0, (4, 4), (1, 9)), parts[1])),
        group_of(key_of("a"), "w", (Extent(0, (4, 5), (1, 2)), parts[1])),
        group_of(key_of("a"), "w", (Extent(0, (4,), (1,)), Extent(0, (4, 4), (2, 3)))),
        group_of(key_of("a"), "w", parts[:1]),
    }
    assert len(others - {name}) == 7


def test_a_digest_covers_the_checksums_of_all_parts_in_order() -> None:
    extents = (Extent(0, (4, 4), (1, 2)), Extent(PAGE, (4,), (3,)))
    payload = Payload(7, 1, overwrite=False, stored_ms=0, extents=extents)
    packed = bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])
    assert payload.digest() == crc32c(packed)
    assert (payload.size_bytes, payload.arena_bytes) == (12, 2 * PAGE)
    assert (payload.view.parts, payload.view.group) == (2, 7)
