"""Assembly: whatever a node or a wire does to an answer, no wrong byte counts as received."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.client.assembly import Assembly, Expected
from kvorum.client.destinations import LooseDestination
from kvorum.client.results import MissReason
from kvorum.core.checksum import frame_checksums
from kvorum.core.errors import ChecksumError
from kvorum.v1 import cache_pb2, common_pb2
from kvorum.v1.frames import Frame, decode_get_response, encode

Message = Frame[cache_pb2.GetResponse]
GROUP = 7


@dataclass
class Reader:
    """An assembly with all that it reports; `owned` are the positions that it may write."""

    sizes: Sequence[tuple[int, ...]]
    owned: set[int] | None = None
    outcomes: dict[int, MissReason | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.destination = LooseDestination(1 << 20)
        expected = [Expected(at, GROUP, sizes) for at, sizes in enumerate(self.sizes)]
        self.assembly = Assembly(expected, self.destination, self._claim, self._done)

    def _claim(self, position: int) -> bool:
        return self.owned is None or position in self.owned

    def _done(self, position: int, outcome: MissReason | bool) -> None:
        assert position not in self.outcomes, "an item ends once"
        self.outcomes[position] = outcome

    def received(self) -> dict[int, bytes]:
        """Return the bytes of every position that counts as received."""
        good = [at for at, outcome in self.outcomes.items() if outcome is True]
        return {at: self.destination._blocks[at].tobytes() for at in good}


def payload(sizes: Sequence[int], seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(sum(sizes))


def header(sizes: Sequence[int], data: bytes, group: int = GROUP) -> cache_pb2.ItemHeader:
    sums = frame_checksums(memoryview(data), sizes)
    return cache_pb2.ItemHeader(frame_sizes=sizes, frame_crc32c=sums, group=group)


def answer(sizes: Sequence[tuple[int, ...]], step: int) -> list[Message]:
    """Return an honest answer in messages of `step` bytes; item i holds the noise of seed i."""
    runs: list[tuple[cache_pb2.GetChunk, bytes]] = []
    for item, frames in enumerate(sizes):
        data = payload(frames, item)
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            chunk = cache_pb2.GetChunk(item=item, offset=at, length=len(piece))
            if not at:
                chunk.header.CopyFrom(header(frames, data))
            runs.append((chunk, piece))
    return [Frame(cache_pb2.GetResponse(chunks=[c]), memoryview(p)) for c, p in runs]


def feed(reader: Reader, messages: Sequence[Message | None]) -> None:
    """Feed messages as a call does: what breaks the protocol ends it."""
    try:
        for message in messages:
            reader.assembly.take(message)
    except ChecksumError:
        pass
    reader.assembly.fail_rest(MissReason.CHECKSUM)


SIZES = st.lists(
    st.lists(st.integers(1, 20), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4
)


@given(SIZES, st.integers(1, 30))
def test_an_honest_answer_is_received_whole(sizes: list[tuple[int, ...]], step: int) -> None:
    reader = Reader(sizes)
    for message in answer(sizes, step):
        assert not reader.assembly.over
        reader.assembly.take(message)
    assert reader.assembly.over
    assert reader.received() == {at: payload(s, at) for at, s in enumerate(sizes)}


def flip(message: Message, bit: int) -> Message | None:
    """Flip a bit of what travels; None if that is no message any more, as gRPC has it."""
    data = bytearray(encode(message))
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    try:
        return decode_get_response(bytes(data))
    except Exception:  # noqa: BLE001  # gRPC, too, turns whatever a parser raises into None
        return None


@settings(max_examples=300)
@given(SIZES, st.integers(1, 30), st.data())
def test_no_harm_on_the_way_makes_wrong_bytes_count(
    sizes: list[tuple[int, ...]], step: int, data: st.DataObject
) -> None:
    """Flip bits, drop, repeat, swap and truncate; then compare all that counts as received."""
    messages: list[Message | None] = list(answer(sizes, step))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(messages) - 1))
        other = data.draw(st.integers(0, len(messages) - 1))
        harm = data.draw(st.sampled_from(["flip", "drop", "repeat", "swap", "cut"]))
        message = messages[at]
        if harm == "flip" and message is not None:
            messages[at] = flip(message, data.draw(st.integers(0, 10_000)))
        elif harm == "drop" and len(messages) > 1:
            del messages[at]
        elif harm == "repeat":
            messages.insert(other, message)
        elif harm == "swap":
            messages[at], messages[other] = messages[other], messages[at]
        elif harm == "cut" and message is not None:
            cut = message.payload[: message.payload.nbytes // 2]
            messages[at] = Frame(message.head, cut)
    reader = Reader(sizes)
    feed(reader, messages)
    for position, got in reader.received().items():
        assert got == payload(sizes[position], position)


def one(change: Callable[[cache_pb2.GetChunk], None]) -> list[Message]:
    """Return the honest answer of one item of two frames, its first chunk changed."""
    message = answer([(3, 5)], 100)[0]
    change(message.head.chunks[0])
    return [message]


@pytest.mark.parametrize(
    "change",
    [
        lambda chunk: setattr(chunk.header, "group", GROUP + 1),
        lambda chunk: chunk.header.ClearField("group"),
        lambda chunk: chunk.header.frame_sizes.pop(),
        lambda chunk: chunk.header.frame_crc32c.pop(),
        lambda chunk: chunk.header.frame_crc32c.reverse(),
        lambda chunk: setattr(chunk, "offset", 1),
        lambda chunk: chunk.ClearField("header"),
    ],
    ids=["group", "no group", "sizes", "sums", "order of sums", "offset", "no header"],
)
def test_a_header_must_be_that_of_what_was_asked(
    change: Callable[[cache_pb2.GetChunk], None],
) -> None:
    reader = Reader([(3, 5)])
    feed(reader, one(change))
    assert reader.outcomes == {0: MissReason.CHECKSUM}
    assert reader.assembly.corrupt == 1


def test_the_bytes_of_another_item_do_not_pass() -> None:
    """The same sizes and an honest header, but item 1's bytes under item 0's name."""
    sizes = [(4, 4), (4, 4)]
    messages = answer(sizes, 100)
    messages[0] = Frame(messages[0].head, messages[1].payload)
    reader = Reader(sizes)
    feed(reader, messages)
    assert reader.outcomes == {0: MissReason.CHECKSUM, 1: True}


def test_an_item_that_comes_twice_ends_the_answer_and_stays_what_it_was() -> None:
    sizes = [(4,)]
    messages = answer(sizes, 100)
    liar = payload((4,), 99)
    second = cache_pb2.GetChunk(item=0, offset=0, length=4, header=header((4,), liar))
    reader = Reader(sizes)
    reader.assembly.take(messages[0])
    with pytest.raises(ChecksumError):
        reader.assembly.take(Frame(cache_pb2.GetResponse(chunks=[second]), memoryview(liar)))
    assert reader.received() == {0: payload((4,), 0)}


def test_an_item_that_was_not_asked_for_ends_the_answer() -> None:
    reader = Reader([(4,)])
    with pytest.raises(ChecksumError, match="not asked for"):
        reader.assembly.take(answer([(4,), (4,)], 100)[1])


def test_a_miss_has_its_reason_and_does_not_touch_the_others() -> None:
    sizes = [(4,), (4,)]
    honest = answer(sizes, 100)
    miss = cache_pb2.GetChunk(item=0)
    miss.header.miss = common_pb2.MISS_REASON_EVICTED
    reader = Reader(sizes)
    feed(reader, [Frame(cache_pb2.GetResponse(chunks=[miss])), honest[1]])
    assert reader.outcomes == {0: MissReason.EVICTED, 1: True}
    assert reader.assembly.corrupt == 0


def test_an_item_that_breaks_off_is_void() -> None:
    sizes = [(4, 4)]
    first = answer(sizes, 5)[0]
    aborted = cache_pb2.GetChunk(item=0, offset=5, aborted=common_pb2.MISS_REASON_CHECKSUM)
    reader = Reader(sizes)
    feed(reader, [first, Frame(cache_pb2.GetResponse(chunks=[aborted]))])
    assert reader.outcomes == {0: MissReason.CHECKSUM}


def test_a_reason_of_a_later_version_is_still_a_miss() -> None:
    reader = Reader([(4,)])
    miss = cache_pb2.GetChunk(item=0)
    miss.header.miss = common_pb2.MissReason.ValueType(99)
    feed(reader, [Frame(cache_pb2.GetResponse(chunks=[miss]))])
    assert reader.outcomes == {0: MissReason.NODE_DOWN}


def test_what_another_answer_writes_is_left_alone() -> None:
    sizes = [(4, 4), (4, 4)]
    reader = Reader(sizes, owned={1})
    feed(reader, answer(sizes, 3))
    assert reader.outcomes == {0: False, 1: True}
    assert reader.received() == {1: payload((4, 4), 1)}


def test_opaque_blocks_may_have_any_frames_but_none_that_is_empty() -> None:
    data = payload((4,), 0)
    reader = Reader([(4,)])
    reader.assembly = Assembly(
        [Expected(0, GROUP, None)], reader.destination, reader._claim, reader._done
    )
    chunk = cache_pb2.GetChunk(item=0, length=4, header=header((1, 3), data))
    feed(reader, [Frame(cache_pb2.GetResponse(chunks=[chunk]), memoryview(data))])
    assert reader.received() == {0: data}

    empty = Reader([(4,)])
    empty.assembly = Assembly(
        [Expected(0, GROUP, None)], empty.destination, empty._claim, empty._done
    )
    chunk = cache_pb2.GetChunk(item=0, length=4, header=header((0, 4), data))
    feed(empty, [Frame(cache_pb2.GetResponse(chunks=[chunk]), memoryview(data))])
    assert empty.outcomes == {0: MissReason.CHECKSUM}


def test_payload_that_no_chunk_covers_ends_the_answer() -> None:
    message = answer([(4,)], 100)[0]
    longer = Frame(message.head, memoryview(bytes(message.payload) + b"x"))
    with pytest.raises(ChecksumError, match="cover"):
        Reader([(4,)]).assembly.take(longer)
