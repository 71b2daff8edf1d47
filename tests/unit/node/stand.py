"""Stand: an engine with a small arena and one namespace, without any server."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Final

from kvorum.core import limits
from kvorum.core.checksum import frame_checksums
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import slot_of
from kvorum.node.arena import Arena
from kvorum.node.clock import Clock
from kvorum.node.driver import Driver
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.events import ApplyNamespace, Effect, NamespaceId, NamespaceRecord, Policy
from kvorum.v1 import cache_pb2, common_pb2
from kvorum.v1.frames import Frame

MIB: Final = 1 << 20
ROOT: Final = b"\1" * limits.KEY_BYTES
SPACE: Final = NamespaceId("default", "ns")
OPAQUE: Final = Fingerprint(
    model="stand",
    weights_revision="1",
    tokenizer="stand",
    adapter="none",
    kv_dtype="uint8",
    layout="opaque",
    layers=1,
    kv_heads=1,
    head_size=1,
    rope="none",
    tp_size=1,
    pp_size=1,
    cp_size=1,
    block_tokens=16,
    codec_class="lossless",
)


@dataclass(slots=True)
class Time:
    """A clock's source that stands still until it is moved."""

    ns: int = 1_700_000_000_000_000_000

    def __call__(self) -> int:
        return self.ns

    def pass_ms(self, ms: int) -> None:
        """Let time pass."""
        self.ns += ms * 1_000_000


@dataclass(slots=True)
class Stand:
    """A driver, its arena, its time, and what the engine asked to be carried out."""

    time: Time
    arena: Arena
    driver: Driver
    effects: list[Effect] = field(default_factory=list)

    @property
    def open_grants(self) -> int:
        """Reads and writes that nobody has ended."""
        status = self.driver.engine.status()
        return status.open_reads + status.open_writes


def stand(memory: int = 8 * MIB, fingerprint: Fingerprint = OPAQUE, **settings: Any) -> Stand:
    """Return a new stand; `settings` go to the engine."""
    time, arena = Time(), Arena(memory)
    engine = Engine(EngineSettings(capacity_bytes=memory, **settings))
    made = Stand(time, arena, Driver(engine, arena, Clock(time)))
    made.driver.on_effect = made.effects.append
    made.driver.tell(ApplyNamespace(NamespaceRecord(SPACE, fingerprint, Policy(2), 1)))
    return made


def item(data: bytes, *sizes: int, key: bytes | None = None, **fields: Any) -> cache_pb2.PutItem:
    """Return what announces a block with these bytes; one frame unless sizes are given."""
    key = secrets.token_bytes(limits.KEY_BYTES) if key is None else key
    cut = sizes or (len(data),)
    return cache_pb2.PutItem(
        block=common_pb2.BlockRef(key=key, slot=slot_of(key)),
        parent=ROOT,
        parts=1,
        frame_sizes=cut,
        frame_crc32c=frame_checksums(memoryview(data), cut),
        **fields,
    )


def opening(*items: cache_pb2.PutItem) -> cache_pb2.PutOpen:
    """Return the announcement of a store."""
    return cache_pb2.PutOpen(
        namespace=common_pb2.NamespaceRef(name="ns", fingerprint_digest=OPAQUE.digest()),
        items=items,
        writer="stand",
    )


def put_frame(*runs: tuple[int, int, int], payload: bytes) -> Frame[cache_pb2.PutRequest]:
    """Return one message of a store: its chunks as (item, offset, length), and its payload."""
    head = cache_pb2.PutRequest(
        chunks=[cache_pb2.PutChunk(item=i, offset=o, length=n) for i, o, n in runs]
    )
    return Frame(head, memoryview(payload))
