"""Bad stores: a typed error that names field and limit; nothing is held, nothing is seen."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kvorum.core import errors, limits
from kvorum.core.errors import KvorumError
from kvorum.v1 import cache_pb2, common_pb2
from tests.integration.node.rig import MIB, Caller, part, put_frame

DATA = random.Random(14).randbytes(2 * MIB)


def _set(field: str, value: Any) -> Callable[[cache_pb2.PutOpen], None]:
    """Return a change of the first item's `field`."""

    def change(opening: cache_pb2.PutOpen) -> None:
        item = opening.items[0]
        if isinstance(value, list):
            item.ClearField(field)  # type: ignore[arg-type]  # a field's name
            getattr(item, field).extend(value)
        else:
            setattr(item, field, value)

    return change


def _double(opening: cache_pb2.PutOpen) -> None:
    opening.items.append(opening.items[0])


def _many(opening: cache_pb2.PutOpen) -> None:
    for number in range(1_024):
        opening.items.append(opening.items[0])
        opening.items[-1].block.key = number.to_bytes(64, "big")


OPENINGS: dict[str, tuple[str, type[KvorumError], Callable[[cache_pb2.PutOpen], object]]] = {
    "no items": ("open.items", errors.InvalidArgumentError, lambda o: o.ClearField("items")),
    "many items": ("open.items", errors.TooLargeError, _many),
    "one part twice": ("open.items[1]", errors.InvalidArgumentError, _double),
    "no writer": ("open.writer", errors.InvalidArgumentError, lambda o: o.ClearField("writer")),
    "a long writer": (
        "open.writer",
        errors.InvalidArgumentError,
        lambda o: setattr(o, "writer", "w" * 129),
    ),
    "a condition of the future": (
        "open.condition",
        errors.InvalidArgumentError,
        lambda o: o.MergeFromString(b"\x20\x63"),
    ),
    "a short key": (
        "open.items[0].block.key",
        errors.InvalidArgumentError,
        lambda o: setattr(o.items[0].block, "key", b"k"),
    ),
    "no such slot": (
        "open.items[0].block.slot",
        errors.InvalidArgumentError,
        lambda o: setattr(o.items[0].block, "slot", 1 << 20),
    ),
    "a short parent": ("open.items[0].parent", errors.InvalidArgumentError, _set("parent", b"p")),
    "an index beyond all prompts": (
        "open.items[0].index",
        errors.InvalidArgumentError,
        _set("index", limits.PROMPT_TOKENS_MAX // 16),
    ),
    "no parts": ("open.items[0].parts", errors.InvalidArgumentError, _set("parts", 0)),
    "many parts": ("open.items[0].parts", errors.InvalidArgumentError, _set("parts", 1_025)),
    "a part beyond its block": ("open.items[0].part", errors.InvalidArgumentError, _set("part", 1)),
    "no frames": (
        "open.items[0].frame_sizes",
        errors.InvalidArgumentError,
        _set("frame_sizes", []),
    ),
    "many frames": (
        "open.items[0].frame_sizes",
        errors.TooLargeError,
        _set("frame_sizes", [1] * 1_025),
    ),
    "an empty frame": (
        "open.items[0].frame_sizes",
        errors.InvalidArgumentError,
        _set("frame_sizes", [0]),
    ),
    "a part larger than the node takes": (
        "open.items[0].frame_sizes",
        errors.TooLargeError,
        _set("frame_sizes", [(16 << 20) + 1]),
    ),
    "no checksums": (
        "open.items[0].frame_crc32c",
        errors.InvalidArgumentError,
        _set("frame_crc32c", []),
    ),
    "a group without its condition": (
        "open.items[0].if_group",
        errors.InvalidArgumentError,
        _set("if_group", 7),
    ),
    "no digest": (
        "namespace.fingerprint_digest",
        errors.FingerprintError,
        lambda o: o.namespace.ClearField("fingerprint_digest"),
    ),
    "another fingerprint": (
        "open.namespace.fingerprint_digest",
        errors.FingerprintError,
        lambda o: setattr(o.namespace, "fingerprint_digest", bytes(64)),
    ),
    "no namespace": (
        "namespace.name",
        errors.InvalidArgumentError,
        lambda o: o.namespace.ClearField("name"),
    ),
    "an unknown namespace": (
        "namespace.name",
        errors.NamespaceNotFoundError,
        lambda o: setattr(o.namespace, "name", "unknown"),
    ),
    "another protocol": (
        "context.protocol_version",
        errors.ProtocolVersionError,
        lambda o: setattr(o.context, "protocol_version", 2),
    ),
}


@pytest.mark.parametrize("case", list(OPENINGS))
async def test_what_opens_a_store(caller: Caller, case: str) -> None:
    """Goal: every field of an opening is checked before a byte is taken, and nothing is held."""
    field, kind, change = OPENINGS[case]
    one = part(DATA[:100])
    opened = caller.opening([one])
    change(opened.head.open)
    with pytest.raises(KvorumError) as caught:
        await caller.send([opened, put_frame((0, 0, 100), payload=one.data)])
    assert type(caught.value) is kind, caught.value
    assert caught.value.field == field
    assert caught.value.limit or kind is errors.FingerprintError
    assert (await caller.status()).staged_bytes == 0
    assert (await caller.lookup([one.key])).present_blocks == 0


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="nothing"),
        pytest.param([put_frame((0, 0, 1), payload=b"x")], id="no opening"),
    ],
)
async def test_a_store_that_never_opens(caller: Caller, messages: list[Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        await caller.send(messages)
    assert caught.value.field == "open"


async def test_an_opening_with_payload(caller: Caller) -> None:
    opened = caller.opening([part(b"x")])
    wrong = put_frame((0, 0, 1), payload=b"x")
    wrong.head.open.CopyFrom(opened.head.open)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        await caller.send([wrong])
    assert caught.value.field == "payload"


@pytest.mark.parametrize(
    ("field", "kind", "frame"),
    [
        ("open", errors.InvalidArgumentError, "second opening"),
        ("chunks[0].item", errors.InvalidArgumentError, put_frame((1, 0, 1), payload=b"x")),
        ("chunks.length", errors.InvalidArgumentError, put_frame((0, 0, 5), payload=b"x")),
        ("payload", errors.TooLargeError, put_frame((0, 0, 2 * MIB), payload=DATA)),
    ],
)
async def test_a_message_that_does_not_fit_the_store(
    caller: Caller, field: str, kind: type[KvorumError], frame: Any
) -> None:
    one = part(DATA)
    opened = caller.opening([one])
    start = put_frame((0, 0, 100), payload=DATA[:100])
    with pytest.raises(KvorumError) as caught:
        await caller.send([opened, start, opened if isinstance(frame, str) else frame])
    assert type(caught.value) is kind
    assert caught.value.field == field
    state = await caller.status()
    assert state.staged_bytes == 0
    assert (await caller.lookup([one.key])).present_blocks == 0


async def test_items_that_only_the_engine_can_refuse(caller: Caller) -> None:
    """Goal: a slot that the key contradicts, and parts that the fingerprint contradicts."""
    wrong_slot, wrong_parts = part(DATA[:10]), part(DATA[:10], parts=2)
    opened = caller.opening([wrong_slot, wrong_parts])
    opened.head.open.items[0].block.slot ^= 1
    results = await caller.send([opened, put_frame((0, 0, 10), (1, 0, 10), payload=DATA[:20])])
    assert [r.outcome for r in results] == [cache_pb2.PUT_OUTCOME_REFUSED] * 2
    assert [r.error.code for r in results] == [
        common_pb2.ERROR_CODE_INVALID_ARGUMENT,
        common_pb2.ERROR_CODE_FINGERPRINT,
    ]
    assert all(r.error.field and r.error.limit for r in results)
