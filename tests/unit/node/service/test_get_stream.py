"""GetStream against the real engine: packing, ranges, corruption, and grants that always end."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.engine.events import Miss
from kvorum.node.service.get_stream import GetStream
from kvorum.node.service.put_stream import PutStream
from kvorum.v1 import cache_pb2
from kvorum.v1.frames import Frame, decode_get_response, encode
from tests.unit.node.stand import MIB, OPAQUE, SPACE, Stand, item, opening, put_frame, stand

DATA = random.Random(7).randbytes(3 * MIB)


def stored(made: Stand, *items: cache_pb2.PutItem, payload: bytes) -> None:
    """Store items whose bytes are `payload`, one after the other."""
    stream = PutStream(made.driver, SPACE, opening(*items), [True] * len(items))
    start = 0
    for index, one in enumerate(items):
        size = sum(one.frame_sizes)
        for offset in range(0, size, MIB):
            length = min(MIB, size - offset)
            at = start + offset
            stream.take(put_frame((index, offset, length), payload=payload[at : at + length]))
        start += size
    stream.abort()


class Reader:
    """Takes frames as gRPC would: encoded before the next one is made."""

    def __init__(self, fail_after: int = 1 << 30) -> None:
        self.frames: list[Frame[cache_pb2.GetResponse]] = []
        self._fail_after = fail_after

    async def send(self, frame: Frame[cache_pb2.GetResponse]) -> None:
        if len(self.frames) >= self._fail_after:
            raise ConnectionError
        self.frames.append(decode_get_response(encode(frame)))

    def items(self) -> dict[int, tuple[int, bytes]]:
        """Miss reason and bytes of every item, put together from its chunks."""
        out: dict[int, tuple[int, bytes]] = {}
        for frame in self.frames:
            at = 0
            for chunk in frame.head.chunks:
                miss, data = out.get(chunk.item, (0, b""))
                assert chunk.offset == len(data)
                assert chunk.HasField("header") == (chunk.item not in out)
                data += frame.payload[at : at + chunk.length]
                out[chunk.item] = (miss or chunk.header.miss, data)
                at += chunk.length
            assert at == frame.payload.nbytes
        return out


async def read(
    made: Stand,
    reader: Reader,
    items: Sequence[cache_pb2.GetItem],
    owned: Sequence[bool] | None = None,
    *,
    lease_broken: bool = False,
) -> dict[int, tuple[int, bytes]]:
    stream = GetStream(made.driver, SPACE, OPAQUE.digest(), reader.send, lease_broken=lease_broken)
    await stream.run(items, owned or [True] * len(items))
    return reader.items()


def whole(one: cache_pb2.PutItem) -> cache_pb2.GetItem:
    return cache_pb2.GetItem(block=one.block)


async def test_small_items_share_frames() -> None:
    """Goal: 300 items of 10,000 bytes travel in as few frames as their bytes need."""
    made = stand()
    items = [item(DATA[i * 10_000 : (i + 1) * 10_000]) for i in range(300)]
    stored(made, *items, payload=DATA)
    reader = Reader()
    got = await read(made, reader, [whole(one) for one in items])
    assert b"".join(data for _, data in got.values()) == DATA[: 300 * 10_000]
    assert [f.payload.nbytes for f in reader.frames] == [MIB, MIB, 3_000_000 - 2 * MIB]
    assert made.open_grants == 0


async def test_a_large_item_is_cut_and_its_tail_shares_a_frame() -> None:
    made = stand(memory=16 * MIB)
    large, small = item(DATA[: 2 * MIB + 5]), item(DATA[2 * MIB + 5 : 2 * MIB + 9])
    stored(made, large, small, payload=DATA)
    reader = Reader()
    got = await read(made, reader, [whole(large), whole(small)])
    assert got == {0: (0, DATA[: 2 * MIB + 5]), 1: (0, DATA[2 * MIB + 5 : 2 * MIB + 9])}
    assert [f.payload.nbytes for f in reader.frames] == [MIB, MIB, 9]


async def test_many_frames_of_one_byte_do_not_swell_the_head() -> None:
    """Goal: the head of a message stays within the message limit, however fine the frames are."""
    made = stand()
    items = [item(DATA[i * 1_024 : (i + 1) * 1_024], *[1] * 1_024) for i in range(800)]
    stored(made, *items, payload=DATA)
    reader = Reader()
    got = await read(made, reader, [whole(one) for one in items])
    assert len(got) == 800
    assert max(len(encode(frame)) for frame in reader.frames) < 5 * MIB // 4


@pytest.mark.parametrize(
    ("begin", "end", "first", "last"),
    [(0, 0, 0, 600), (0, 1, 0, 100), (1, 0, 100, 600), (1, 2, 100, 300), (2, 3, 300, 600)],
)
async def test_a_range_of_frames_can_be_read_alone(
    begin: int, end: int, first: int, last: int
) -> None:
    made = stand()
    one = item(DATA[:600], 100, 200, 300)
    stored(made, one, payload=DATA)
    reader = Reader()
    asked = cache_pb2.GetItem(block=one.block, frame_begin=begin, frame_end=end)
    assert await read(made, reader, [asked]) == {0: (0, DATA[first:last])}
    header = reader.frames[0].head.chunks[0].header
    assert sum(header.frame_sizes) == last - first
    assert list(header.frame_crc32c) == list(one.frame_crc32c)[begin : end or None]
    assert header.group


@pytest.mark.parametrize(("begin", "end"), [(3, 0), (3, 4), (0, 4)])
async def test_a_range_beyond_the_part_is_refused_and_grants_end(begin: int, end: int) -> None:
    made = stand()
    one = item(DATA[:600], 100, 200, 300)
    stored(made, one, payload=DATA)
    with pytest.raises(InvalidArgumentError) as caught:
        await read(
            made, Reader(), [cache_pb2.GetItem(block=one.block, frame_begin=begin, frame_end=end)]
        )
    assert caught.value.field.startswith("items[0].frame_")
    assert caught.value.limit == "the part has 3 frames"
    assert made.open_grants == 0


async def test_a_flipped_bit_is_a_miss_of_that_item_alone_and_the_block_goes() -> None:
    made = stand()
    items = [item(DATA[i * 1_000 : (i + 1) * 1_000]) for i in range(8)]
    stored(made, *items, payload=DATA)
    at = bytes(made.arena.view(0, made.arena.capacity)).index(DATA[3_000:4_000])
    made.arena.view(at + 500, 1)[0] ^= 1
    got = await read(made, Reader(), [whole(one) for one in items])
    assert got.pop(3) == (Miss.CHECKSUM, b"")
    assert got == {i: (0, DATA[i * 1_000 : (i + 1) * 1_000]) for i in range(8) if i != 3}
    assert made.driver.engine.status().counters["corrupt_blocks"] == 1
    again = await read(made, Reader(), [whole(items[3])])
    assert again == {0: (Miss.CHECKSUM, b"")}
    assert made.open_grants == 0


async def test_misses_say_why() -> None:
    made = stand()
    here, never, elsewhere = item(DATA[:10]), item(DATA[:10]), item(DATA[:10])
    stored(made, here, payload=DATA)
    asked = [whole(here), whole(never), whole(elsewhere)]
    got = await read(made, Reader(), asked, [True, True, False])
    assert got == {0: (0, DATA[:10]), 1: (Miss.NEVER_STORED, b""), 2: (Miss.STALE_EPOCH, b"")}


async def test_under_a_broken_lease_what_is_absent_is_stale() -> None:
    made = stand()
    here, never = item(DATA[:10]), item(DATA[:10])
    stored(made, here, payload=DATA)
    got = await read(made, Reader(), [whole(here), whole(never)], lease_broken=True)
    assert got == {0: (0, DATA[:10]), 1: (Miss.STALE_EPOCH, b"")}


@pytest.mark.parametrize("frames", [0, 1, 2])
async def test_a_reader_that_vanishes_leaves_no_grant(frames: int) -> None:
    made = stand(memory=16 * MIB)
    items = [item(DATA[:MIB]), item(DATA[MIB : 2 * MIB]), item(DATA[2 * MIB :])]
    stored(made, *items, payload=DATA)
    with pytest.raises(ConnectionError):
        await read(made, Reader(fail_after=frames), [whole(one) for one in items])
    assert made.open_grants == 0


async def test_a_slow_reader_holds_little_of_the_arena() -> None:
    """Method: look at the open grants while each frame is being sent, with 3 MiB in 300 items."""
    made = stand()
    items = [item(DATA[i * 10_000 : (i + 1) * 10_000]) for i in range(300)]
    stored(made, *items, payload=DATA)
    held = []

    class Watching(Reader):
        async def send(self, frame: Frame[cache_pb2.GetResponse]) -> None:
            held.append(made.driver.engine.status().open_reads)
            await super().send(frame)

    await read(made, Watching(), [whole(one) for one in items])
    assert 0 < max(held) <= 128 + 64
