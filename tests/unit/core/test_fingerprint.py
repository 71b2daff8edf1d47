"""Fingerprint: each field counts, none has a default, and what is wrong is refused by name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from kvorum.core import limits
from kvorum.core.errors import FingerprintError
from kvorum.core.fingerprint import DTYPE_BYTES, LAYOUTS, Fingerprint
from kvorum.core.keys import chain

FIELDS: dict[str, Any] = {
    "model": "m", "weights_revision": "r", "tokenizer": "t", "adapter": "none",
    "kv_dtype": "float16", "layout": "LKHTD", "layers": 4, "kv_heads": 4, "head_size": 8,
    "rope": "none", "tp_size": 1, "pp_size": 1, "cp_size": 1, "block_tokens": 16,
    "codec_class": "lossless",
}  # fmt: skip
CHANGED: dict[str, Any] = {
    "model": "n", "weights_revision": "s", "tokenizer": "u", "adapter": "lora@1",
    "kv_dtype": "bfloat16", "layout": "opaque", "layers": 5, "kv_heads": 5, "head_size": 9,
    "rope": "default", "tp_size": 2, "pp_size": 2, "cp_size": 2, "block_tokens": 32,
    "codec_class": "int8",
}  # fmt: skip
TEXTS = [name for name, value in FIELDS.items() if isinstance(value, str)]
COUNTS = [name for name, value in FIELDS.items() if isinstance(value, int)]
FREE_TEXTS = [name for name in TEXTS if name not in {"kv_dtype", "layout"}]
SALT = bytes(32)


def build(**changes: object) -> Fingerprint:
    return Fingerprint.from_mapping(FIELDS | changes)


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_changed_alone_changes_every_key(name: str) -> None:
    one, two = build(), build(**{name: CHANGED[name]})
    assert one.digest() != two.digest()
    ids = range(64)
    a, b = chain(one, SALT, ids), chain(two, SALT, ids)
    assert a.root != b.root
    assert not set(a.keys) & set(b.keys)


def test_no_two_single_changes_give_the_same_digest() -> None:
    digests = {build(**{name: value}).digest() for name, value in CHANGED.items()}
    assert len(digests | {build().digest()}) == len(FIELDS) + 1
    assert {len(digest) for digest in digests} == {64}


def test_text_does_not_run_from_one_field_into_the_next() -> None:
    """Without the lengths of the texts, these two would be the same bytes."""
    inside = "\x09\0tokenizers"
    one = build(weights_revision=f"r{inside}1", tokenizer="2")
    two = build(weights_revision="r", tokenizer=f"1{inside}2")
    assert one.digest() != two.digest()


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    fields = {key: value for key, value in FIELDS.items() if key != name}
    with pytest.raises(FingerprintError) as caught:
        Fingerprint.from_mapping(fields)
    assert caught.value.field == f"fingerprint.{name}"
    with pytest.raises(TypeError, match=name):
        Fingerprint(**fields)


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(FingerprintError) as caught:
        build(quantum="yes")
    assert caught.value.field == "fingerprint.quantum"


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    "value", ["", None, 1, b"text", ["text"], "\ud800", "é" * 513], ids=lambda v: repr(v)[:12]
)
def test_text_that_is_none_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(FingerprintError) as caught:
        build(**{name: value})
    assert caught.value.field == f"fingerprint.{name}"
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(
    "value",
    [0, -1, 2**32, 1.0, "1", None, True, np.int64(1), pytest.param(1 << 20_000, id="vast")],
    ids=repr,
)
def test_a_number_that_is_none_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(FingerprintError) as caught:
        build(**{name: value})
    assert caught.value.field == f"fingerprint.{name}"
    assert caught.value.limit
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kv_dtype": "float64"}, "kv_dtype"),
        ({"kv_dtype": "Float16"}, "kv_dtype"),
        ({"layout": "NHD"}, "layout"),
        ({"block_tokens": 8}, "block_tokens"),
        ({"block_tokens": 24}, "block_tokens"),
        ({"block_tokens": 2064}, "block_tokens"),
        ({"layers": 5, "pp_size": 2}, "pp_size"),
        ({"kv_heads": 5, "tp_size": 2}, "tp_size"),
        ({"tp_size": 8, "pp_size": 1, "kv_heads": 4}, "tp_size"),
        ({"layout": "opaque", "cp_size": 1025}, "tp_size"),
        ({"layout": "opaque", "cp_size": 32, "pp_size": 33}, "tp_size"),
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused_by_name(changes: dict[str, object], field: str) -> None:
    with pytest.raises(FingerprintError) as caught:
        build(**changes)
    assert caught.value.field == f"fingerprint.{field}"
    assert caught.value.limit


def test_the_edges_of_every_range_are_accepted() -> None:
    for dtype in DTYPE_BYTES:
        build(kv_dtype=dtype)
    for layout in LAYOUTS:
        build(layout=layout)
    for size in range(16, limits.BLOCK_TOKENS_MAX + 1, 16):
        build(block_tokens=size)
    for name in FREE_TEXTS:
        build(**{name: "é" * (limits.FINGERPRINT_TEXT_BYTES_MAX // 2)})
    build(layers=2**32 - 1, kv_heads=2**32 - 1, head_size=2**32 - 1)
    assert build(layout="opaque", layers=3, tp_size=8, pp_size=2, cp_size=64).parts == 1024


def test_composed_and_decomposed_text_differ() -> None:
    assert build(model="\u00e9").digest() != build(model="e\u0301").digest()


def test_a_fingerprint_survives_a_mapping() -> None:
    assert Fingerprint.from_mapping(asdict(build())) == build()
