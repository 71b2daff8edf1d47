"""What a writer announces is checked against the namespace before anything is allocated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvorum.core import limits
from kvorum.core.errors import FingerprintError, InvalidArgumentError, TooLargeError
from kvorum.node.engine import Engine, EngineSettings
from kvorum.node.engine.entries import Namespace
from kvorum.node.engine.events import (
    ApplyNamespace,
    BeginWrite,
    Condition,
    NamespaceId,
    NamespaceRecord,
    Policy,
    WriteGrant,
    WriteItem,
)
from kvorum.node.engine.validation import check_item, check_keys
from tests.unit.node.engine.prompts import PAGE, fingerprint, item, key_of, record

GOOD = item("a", parts=2)
WRONG = [
    (replace(GOOD, key=b"short"), InvalidArgumentError, "block.key"),
    (replace(GOOD, parent=b"short"), InvalidArgumentError, "parent"),
    (replace(GOOD, parent=GOOD.key), InvalidArgumentError, "parent"),
    (replace(GOOD, index=-1), InvalidArgumentError, "index"),
    (replace(GOOD, index=limits.PROMPT_TOKENS_MAX), InvalidArgumentError, "index"),
    (replace(GOOD, slot=limits.SLOTS), InvalidArgumentError, "block.slot"),
    (replace(GOOD, slot=(GOOD.slot + 1) % limits.SLOTS), InvalidArgumentError, "block.slot"),
    (replace(GOOD, parts=3), FingerprintError, "items.parts"),
    (replace(GOOD, part=2), InvalidArgumentError, "items.part"),
    (replace(GOOD, part=-1), InvalidArgumentError, "items.part"),
    (replace(GOOD, frame_sizes=(), frame_crc32c=()), InvalidArgumentError, "items.frame_sizes"),
    (replace(GOOD, frame_crc32c=(1, 2)), InvalidArgumentError, "items.frame_sizes"),
    (replace(GOOD, frame_sizes=(0,)), InvalidArgumentError, "items.frame_sizes"),
    (replace(GOOD, frame_sizes=(-1,)), InvalidArgumentError, "items.frame_sizes"),
    (
        replace(GOOD, frame_sizes=(limits.PART_BYTES_MAX + 1,)),
        TooLargeError,
        "items.frame_sizes",
    ),
    (
        replace(
            GOOD,
            frame_sizes=(1,) * (limits.PART_FRAMES_MAX + 1),
            frame_crc32c=(1,) * (limits.PART_FRAMES_MAX + 1),
        ),
        TooLargeError,
        "items.frame_sizes",
    ),
]


@pytest.mark.parametrize(("wrong", "error", "field"), WRONG)
def test_a_wrong_item_is_refused_by_field_and_limit(
    wrong: WriteItem, error: type[InvalidArgumentError], field: str
) -> None:
    namespace = Namespace(record("chat", 2), 1)
    check_item(namespace, GOOD)
    with pytest.raises(error) as caught:
        check_item(namespace, wrong)
    assert type(caught.value) is error
    assert caught.value.field == field


def test_one_wrong_item_of_a_batch_leaves_the_others_alone() -> None:
    engine = Engine(EngineSettings(capacity_bytes=16 * PAGE))
    engine.handle(ApplyNamespace(record("chat", 2)), 0)
    items = (GOOD, *(wrong for wrong, _, _ in WRONG), replace(GOOD, part=1))
    event = BeginWrite(
        NamespaceId("t", "chat"), fingerprint(2).digest(), "w", Condition.IF_ABSENT, items
    )
    answers, _ = engine.handle(event, 0)
    assert len(answers) == len(items)
    assert [isinstance(answer, WriteGrant) for answer in answers] == [
        True,
        *(False for _ in WRONG),
        True,
    ]
    assert engine.status().used_bytes == 2 * PAGE


def test_parts_of_one_block_must_agree_on_its_place() -> None:
    engine = Engine(EngineSettings(capacity_bytes=16 * PAGE))
    engine.handle(ApplyNamespace(record("chat", 2)), 0)
    first, other = item("ab", 0, 2), replace(item("ab", 1, 2), index=2)
    event = BeginWrite(
        NamespaceId("t", "chat"), fingerprint(2).digest(), "w", Condition.IF_ABSENT, (first, other)
    )
    (granted, refused), _ = engine.handle(event, 0)
    assert isinstance(granted, WriteGrant)
    assert isinstance(refused, InvalidArgumentError)
    assert refused.field == "items.index"


def test_a_fixed_layout_knows_the_size_of_every_frame() -> None:
    shaped = replace(
        fingerprint(), layout="LKHTD", kv_dtype="float16", layers=4, kv_heads=2, head_size=8
    )
    definition = NamespaceRecord(NamespaceId("t", "n"), shaped, Policy(1), 1)
    namespace = Namespace(definition, 1)
    frame_bytes = 2 * 2 * shaped.block_tokens * 8 * 2
    good = item("a", frame_sizes=(frame_bytes,) * 4, frame_crc32c=(1,) * 4)
    check_item(namespace, good)
    for sizes in ((frame_bytes,) * 3, (frame_bytes - 1,) + (frame_bytes,) * 3):
        wrong = replace(good, frame_sizes=sizes, frame_crc32c=(1,) * len(sizes))
        with pytest.raises(FingerprintError):
            check_item(namespace, wrong)


def test_a_layout_of_more_layers_than_frames_may_be_costs_nothing_and_matches_nothing() -> None:
    deep = replace(fingerprint(), layout="LKHTD", kv_dtype="int8", layers=2**32 - 1)
    namespace = Namespace(NamespaceRecord(NamespaceId("t", "n"), deep, Policy(1), 1), 1)
    frames = limits.PART_FRAMES_MAX
    frame_bytes = 2 * deep.block_tokens
    one = item("a", frame_sizes=(frame_bytes,) * frames, frame_crc32c=(1,) * frames)
    with pytest.raises(FingerprintError):
        check_item(namespace, one)


def test_keys_are_counted_and_measured() -> None:
    check_keys([key_of("a")] * 3, 3)
    with pytest.raises(TooLargeError):
        check_keys([key_of("a")] * 4, 3)
    with pytest.raises(InvalidArgumentError):
        check_keys([b"x" * 63], 3)
