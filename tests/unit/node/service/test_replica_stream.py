"""ReplicaStream fed by a HistoryWriter: one engine's history arrives in another's, whole or not."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kvorum.core.checksum import frame_checksums
from kvorum.core.errors import InvalidArgumentError
from kvorum.node.engine.events import Delete, Miss, Replicate, Stat
from kvorum.node.engine.pipe import Pipe
from kvorum.node.history import HistoryWriter
from kvorum.node.service.put_stream import PutStream
from kvorum.node.service.replica_stream import ReplicaStream
from kvorum.v1 import cache_pb2, common_pb2, replication_pb2
from kvorum.v1.frames import Frame, decode_replicate_request, encode
from tests.unit.node.stand import MIB, OPAQUE, SPACE, Stand, item, opening, put_frame, stand

DATA = random.Random(8).randbytes(3 * MIB)
Messages = list[Frame[replication_pb2.ReplicateRequest]]


@dataclass(slots=True)
class Wire:
    """Takes frames as gRPC would: encoded before the next one is made."""

    frames: Messages = field(default_factory=list)

    async def write(self, frame: Frame[replication_pb2.ReplicateRequest]) -> None:
        self.frames.append(decode_replicate_request(encode(frame)))


def stored(made: Stand, data: bytes, *sizes: int) -> cache_pb2.PutItem:
    one = item(data, *sizes)
    stream = PutStream(made.driver, SPACE, opening(one), [True])
    for offset in range(0, len(data), MIB):
        run = data[offset : offset + MIB]
        stream.take(put_frame((0, offset, len(run)), payload=run))
    return one


async def history(made: Stand, *, passed_over: int = 0) -> Messages:
    """Return everything that `made` has to tell, as messages."""
    pipe = Pipe(1_000, 1 << 30, window_bytes=1 << 30)
    for effect in made.effects:
        pipe.push(effect, 0)
    made.effects.clear()
    wire = Wire()
    writer = HistoryWriter(made.driver, wire.write)
    sent = [await writer.send(entry) for entry in pipe.take()]
    await writer.flush()
    assert sent.count(False) == passed_over
    assert made.open_grants == 0
    return wire.frames


def blocks(made: Stand, *items: cache_pb2.PutItem) -> list[tuple[Miss | None, int, int]]:
    keys = tuple(one.block.key for one in items)
    infos = made.driver.tell(Stat(SPACE, OPAQUE.digest(), keys))
    return [(info.miss, info.group, info.digest) for info in infos]


async def test_blocks_and_deletes_arrive_as_they_were() -> None:
    source, target = stand(memory=16 * MIB), stand(memory=16 * MIB)
    large, small = stored(source, DATA, MIB, 2 * MIB), stored(source, DATA[:100])
    doomed = stored(source, DATA[100:200])
    stream = ReplicaStream(target.driver)
    for frame in await history(source):
        assert frame.payload.nbytes <= MIB
        stream.take(frame)
    assert stream.acknowledged == 3
    assert stream.take_refused() == []
    assert stream.behind_since_ms is None
    assert blocks(target, large, small, doomed) == blocks(source, large, small, doomed)
    source.driver.tell(Delete(SPACE, OPAQUE.digest(), (doomed.block.key,), (doomed.block.slot,)))
    [frame] = await history(source)
    ReplicaStream(target.driver).take(frame)
    assert blocks(target, doomed) == [(Miss.INVALIDATED, 0, 0)]
    assert target.effects == [], "a replica replicates nothing"


async def test_what_is_gone_or_broken_when_its_turn_comes_is_passed_over() -> None:
    source = stand()
    gone, broken, kept = (stored(source, DATA[i * 99 : i * 99 + 99]) for i in range(3))
    source.driver.tell(Delete(SPACE, OPAQUE.digest(), (gone.block.key,), (gone.block.slot,)))
    at = bytes(source.arena.view(0, source.arena.capacity)).index(DATA[99:198])
    source.arena.view(at, 1)[0] ^= 1
    target = stand()
    stream = ReplicaStream(target.driver)
    for frame in await history(source, passed_over=2):
        stream.take(frame)
    assert blocks(target, kept) == blocks(source, kept)
    assert [miss for miss, _, _ in blocks(source, broken)] == [Miss.CHECKSUM]


async def test_a_stream_that_breaks_off_leaves_nothing_and_can_be_sent_again() -> None:
    source, target = stand(memory=16 * MIB), stand(memory=16 * MIB)
    one = stored(source, DATA)
    messages = await history(source)
    assert len(messages) == 3
    broken = ReplicaStream(target.driver)
    broken.take(messages[0])
    broken.take(messages[1])
    assert broken.acknowledged == 0
    assert broken.behind_since_ms is not None
    broken.abort()
    assert target.open_grants == 0
    assert target.driver.engine.status().used_bytes == 0
    again = ReplicaStream(target.driver)
    for message in messages:
        again.take(message)
    assert again.acknowledged == 1
    assert blocks(target, one) == blocks(source, one)


async def test_a_flipped_bit_refuses_the_entry_and_the_next_one_arrives() -> None:
    source, target = stand(), stand()
    first, second = stored(source, DATA[:1_000]), stored(source, DATA[1_000:2_000])
    [message] = await history(source)
    wrong = bytearray(message.payload)
    wrong[999] ^= 1
    stream = ReplicaStream(target.driver)
    stream.take(Frame(message.head, memoryview(wrong)))
    assert stream.take_refused() == [1]
    assert stream.take_refused() == []
    assert stream.acknowledged == 2
    assert [miss for miss, _, _ in blocks(target, first, second)] == [Miss.NEVER_STORED, None]
    assert target.open_grants == 0


async def test_what_finds_no_room_is_refused_and_its_bytes_are_passed_over() -> None:
    source, target = stand(memory=16 * MIB), stand(memory=MIB)
    stored(source, DATA)
    small = stored(source, DATA[:100])
    stream = ReplicaStream(target.driver)
    for frame in await history(source):
        stream.take(frame)
    assert stream.take_refused() == [1]
    assert stream.acknowledged == 2
    assert blocks(target, small) == blocks(source, small)


async def test_a_namespace_that_is_not_known_refuses_the_entry() -> None:
    source, target = stand(), stand()
    stored(source, DATA[:100])
    [message] = await history(source)
    message.head.entries[0].namespace = "another"
    stream = ReplicaStream(target.driver)
    stream.take(message)
    assert stream.take_refused() == [1]
    assert stream.acknowledged == 1


def entry(sequence: int, data: bytes = b"x") -> replication_pb2.ReplicateEntry:
    announced = item(data)
    made = replication_pb2.ReplicateEntry(
        sequence=sequence,
        tenant="default",
        namespace="ns",
        fingerprint_digest=OPAQUE.digest(),
        block=announced.block,
        parent=announced.parent,
        group=7,
        clock=1_700_000_000_000 << 16,
    )
    made.parts.add(
        frame_sizes=[len(data)], frame_crc32c=frame_checksums(memoryview(data), [len(data)])
    )
    return made


def message(
    *entries: replication_pb2.ReplicateEntry,
    runs: list[tuple[int, int, int, int]] | None = None,
    payload: bytes = b"",
) -> Frame[replication_pb2.ReplicateRequest]:
    head = replication_pb2.ReplicateRequest(entries=entries)
    for sequence, part, offset, length in runs or []:
        head.chunks.add(sequence=sequence, part=part, offset=offset, length=length)
    return Frame(head, memoryview(payload))


@pytest.mark.parametrize(
    ("field", "frame"),
    [
        ("entries.sequence", message(entry(2), entry(3))),
        ("entries.sequence", message(entry(2), entry(2), runs=[(2, 0, 0, 1)], payload=b"x")),
        ("entries.sequence", message(entry(1))),
        ("chunks.sequence", message(runs=[(9, 0, 0, 1)], payload=b"x")),
        ("chunks.sequence", message(entry(2), runs=[(2, 0, 0, 2)], payload=b"xy")),
        ("chunks.length", message(entry(2), runs=[(2, 0, 0, 2)], payload=b"x")),
        ("payload", message(runs=[(2, 0, 0, MIB + 1)], payload=bytes(MIB + 1))),
        ("entries", message(*[entry(i) for i in range(2, 1_028)])),
    ],
)
def test_a_message_that_does_not_fit_the_stream_ends_it(
    field: str, frame: Frame[replication_pb2.ReplicateRequest]
) -> None:
    made = stand()
    stream = ReplicaStream(made.driver)
    stream.take(message(entry(1), runs=[(1, 0, 0, 1)], payload=b"x"))
    with pytest.raises(InvalidArgumentError) as caught:
        stream.take(frame)
    assert caught.value.field == field
    stream.abort()
    assert made.open_grants == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", ""),
        ("namespace", "UPPER"),
        ("fingerprint_digest", b"short"),
        ("parent", b""),
        ("index", 1 << 20),
        pytest.param("block", common_pb2.BlockRef(key=b"x"), id="short key"),
        pytest.param("block", common_pb2.BlockRef(key=bytes(64), slot=1 << 14), id="no slot"),
        ("clock", 0),
        ("clock", 1 << 62),
        ("group", 0),
        ("tombstone", True),
    ],
)
def test_a_malformed_entry_is_refused_and_the_stream_goes_on(field: str, value: object) -> None:
    made = stand()
    wrong = entry(1)
    wrong.ClearField(field)  # type: ignore[arg-type]  # a field's name
    if isinstance(value, common_pb2.BlockRef):
        wrong.block.CopyFrom(value)
    else:
        setattr(wrong, field, value)
    stream = ReplicaStream(made.driver)
    stream.take(message(wrong, runs=[(1, 0, 0, 1)], payload=b"x"))
    assert stream.take_refused() == [1]
    stream.take(message(entry(2), runs=[(2, 0, 0, 1)], payload=b"x"))
    assert stream.take_refused() == []
    assert stream.acknowledged == 2
    assert made.driver.engine.status().blocks == 1


def test_bytes_that_come_twice_are_refused() -> None:
    made = stand()
    stream = ReplicaStream(made.driver)
    runs = [(1, 0, 0, 1), (1, 0, 0, 1)]
    stream.take(message(entry(1, b"xy"), runs=runs, payload=b"xx"))
    assert stream.take_refused() == [1]
    assert made.open_grants == 0


def test_the_effects_that_history_is_made_of_are_those_of_the_engine() -> None:
    made = stand()
    stored(made, DATA[:10])
    [effect] = made.effects
    assert isinstance(effect, Replicate)
    assert effect.size_bytes == 10
