"""PutStream against the real engine: what is complete is stored, all else leaves nothing behind."""

from __future__ import annotations

import random

import pytest

from kvorum.core.errors import (
    ArenaFullError,
    ChecksumError,
    ErrorCode,
    InvalidArgumentError,
    KvorumError,
    NotOwnerError,
    TooLargeError,
)
from kvorum.node.engine.events import Outcome, WriteReply
from kvorum.node.service.put_stream import PutStream
from kvorum.v1 import cache_pb2
from kvorum.v1.frames import Frame
from tests.unit.node.stand import MIB, SPACE, Stand, item, opening, put_frame, stand

DATA = random.Random(6).randbytes(3_000)


def begun(made: Stand, *items: cache_pb2.PutItem, owned: list[bool] | None = None) -> PutStream:
    return PutStream(made.driver, SPACE, opening(*items), owned or [True] * len(items))


def outcomes(stream: PutStream) -> list[Outcome | ErrorCode]:
    stream.abort()
    return [r.outcome if isinstance(r, WriteReply) else r.code for r in stream.results()]


def test_items_packed_into_one_message_are_stored() -> None:
    made = stand()
    stream = begun(made, item(DATA[:1_000]), item(DATA[1_000:], 500, 1_500))
    stream.take(put_frame((0, 0, 1_000), (1, 0, 2_000), payload=DATA))
    assert outcomes(stream) == [Outcome.STORED, Outcome.STORED]
    assert made.open_grants == 0
    assert made.driver.engine.status().blocks == 2
    assert len(made.effects) == 2


def test_interleaved_items_are_stored() -> None:
    made = stand()
    stream = begun(made, item(DATA[:2_000]), item(DATA[2_000:]))
    stream.take(put_frame((0, 0, 1_000), (1, 0, 500), payload=DATA[:1_000] + DATA[2_000:2_500]))
    stream.take(
        put_frame((1, 500, 500), (0, 1_000, 1_000), payload=DATA[2_500:] + DATA[1_000:2_000])
    )
    assert outcomes(stream) == [Outcome.STORED, Outcome.STORED]


def test_memory_is_taken_only_for_bytes_that_came() -> None:
    """Goal: announcing much and sending nothing holds nothing."""
    made = stand()
    stream = begun(made, *(item(bytes(MIB)) for _ in range(100)))
    stream.take(put_frame((5, 0, 0), payload=b""))
    assert made.driver.engine.status().used_bytes == 0
    stream.take(put_frame((7, 0, 10), payload=bytes(10)))
    assert made.driver.engine.status().staged_bytes == MIB
    stream.abort()
    assert made.driver.engine.status().used_bytes == 0


@pytest.mark.parametrize("sent", [0, 1, 999, 1_000, 1_001, 2_999])
def test_a_stream_that_ends_early_refuses_what_is_incomplete(sent: int) -> None:
    made = stand()
    stream = begun(made, item(DATA[:1_000]), item(DATA[1_000:]))
    first, second = DATA[:1_000][:sent], DATA[1_000:][: max(sent - 1_000, 0)]
    stream.take(put_frame((0, 0, len(first)), (1, 0, len(second)), payload=first + second))
    complete = Outcome.STORED if sent >= 1_000 else ErrorCode.INVALID_ARGUMENT
    assert outcomes(stream) == [complete, ErrorCode.INVALID_ARGUMENT]
    error = stream.results()[1]
    assert isinstance(error, KvorumError)
    assert error.field == "open.items[1]"
    assert error.limit == "2000 bytes"
    assert made.open_grants == 0
    assert made.driver.engine.status().staged_bytes == 0


def test_a_wrong_checksum_refuses_one_item_and_no_other() -> None:
    made = stand()
    stream = begun(made, item(DATA[:1_000]), item(DATA[1_000:2_000]), item(DATA[2_000:]))
    wrong = DATA[:1_000] + b"x" * 1_000 + DATA[2_000:]
    stream.take(put_frame((0, 0, 1_000), (1, 0, 1_000), (2, 0, 1_000), payload=wrong))
    assert outcomes(stream) == [Outcome.STORED, ErrorCode.CHECKSUM, Outcome.STORED]
    assert isinstance(stream.results()[1], ChecksumError)
    assert made.driver.engine.status().blocks == 2


def test_bytes_out_of_order_refuse_one_item_and_what_follows_of_it_is_passed_over() -> None:
    made = stand()
    stream = begun(made, item(DATA[:1_000]), item(DATA[1_000:2_000]))
    stream.take(put_frame((0, 500, 500), (1, 0, 1_000), payload=DATA[500:2_000]))
    stream.take(put_frame((0, 0, 500), payload=DATA[:500]))
    assert outcomes(stream) == [ErrorCode.INVALID_ARGUMENT, Outcome.STORED]


def test_what_is_stored_already_is_said_so_and_its_bytes_are_passed_over() -> None:
    made = stand()
    one = item(DATA)
    for expected in (Outcome.STORED, Outcome.ALREADY_STORED):
        stream = begun(made, one)
        stream.take(put_frame((0, 0, 3_000), payload=DATA))
        assert outcomes(stream) == [expected]
    assert made.driver.engine.status().used_bytes == 4_096


def test_an_item_of_another_shard_is_refused_and_the_others_go_on() -> None:
    made = stand()
    stream = begun(made, item(DATA[:1_000]), item(DATA[1_000:2_000]), owned=[False, True])
    stream.take(put_frame((0, 0, 1_000), (1, 0, 1_000), payload=DATA[:2_000]))
    assert outcomes(stream) == [ErrorCode.NOT_OWNER, Outcome.STORED]
    assert isinstance(stream.results()[0], NotOwnerError)


def test_an_item_that_finds_no_room_is_refused_and_the_others_go_on() -> None:
    """Method: the first item is larger than the arena; the second fits."""
    made = stand(memory=MIB)
    stream = begun(made, item(bytes(2 * MIB)), item(DATA))
    stream.take(put_frame((0, 0, 10), (1, 0, 3_000), payload=bytes(10) + DATA))
    results = outcomes(stream)
    assert results[1] is Outcome.STORED
    assert isinstance(stream.results()[0], ArenaFullError | TooLargeError)


@pytest.mark.parametrize(
    ("field", "frame"),
    [
        ("open", Frame(cache_pb2.PutRequest(open=cache_pb2.PutOpen()))),
        ("chunks[0].item", put_frame((2, 0, 1), payload=b"x")),
        ("chunks.length", put_frame((0, 0, 2), payload=b"x")),
        ("chunks.length", put_frame((0, 0, 1), payload=b"xy")),
        ("chunks.length", put_frame(payload=b"x")),
        ("payload", put_frame((0, 0, MIB + 1), payload=bytes(MIB + 1))),
        ("chunks", put_frame(*[(0, 0, 0)] * 1_025, payload=b"")),
    ],
)
def test_a_message_that_does_not_fit_the_stream_ends_it(
    field: str, frame: Frame[cache_pb2.PutRequest]
) -> None:
    made = stand()
    stream = begun(made, item(DATA), item(DATA))
    stream.take(put_frame((0, 0, 100), payload=DATA[:100]))
    with pytest.raises(InvalidArgumentError) as caught:
        stream.take(frame)
    assert caught.value.field == field
    assert caught.value.limit
    stream.abort()
    assert made.open_grants == 0
    assert made.driver.engine.status().used_bytes == 0
