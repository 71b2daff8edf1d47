"""What the engine counts for describing a block is about what Python spends on it."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import BeginWrite, CommitWrite, Condition, NamespaceId, WriteGrant
from tests.unit.node.engine.prompts import PAGE, fingerprint, item
from tests.unit.node.engine.store import define

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
