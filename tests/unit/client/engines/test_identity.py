"""Goal: whatever changes a model's KV changes its fingerprint, and nothing else does.

Method: models and tokenizers that differ in one thing at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kvorum.client.engines import rope  # noqa: E402
from kvorum.client.engines.identity import (  # noqa: E402
    active_adapters,
    adapter_identity,
    fingerprint_of,
    tokenizer_checksum,
    weights_checksum,
)
from kvorum.core.errors import FingerprintError  # noqa: E402

pytestmark = pytest.mark.engine

TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"?": 0, "a": 1, "b": 2}, "unk_token": "?"},
}
SPECIAL = {"pad_token": "?"}
Module: Any = torch.nn.Module


def tokenizer(folder: Path, **vocabulary: int) -> Any:
    definition = json.loads(json.dumps(TOKENIZER))
    definition["model"]["vocab"].update(vocabulary)
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(definition))
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIAL)


def test_two_builds_of_one_model_have_one_fingerprint(
    make_llama: Callable[..., Any], tmp_path: Path
) -> None:
    first = fingerprint_of(make_llama(), tokenizer(tmp_path), block_tokens=16)
    second = fingerprint_of(make_llama(), tokenizer(tmp_path), block_tokens=16)
    assert first == second
    assert first.model == "LlamaForCausalLM"
    assert first.weights_revision.startswith("sha256:")
    assert (first.adapter, first.codec_class, first.layout) == ("none", "lossless", "LKHTD")
    assert (first.layers, first.kv_heads, first.head_size) == (2, 2, 8)
    assert first.block_tokens == 16


def test_one_bit_of_one_weight_changes_the_revision(make_llama: Callable[..., Any]) -> None:
    model, other = make_llama(), make_llama()
    with torch.no_grad():
        weight = other.model.layers[1].mlp.up_proj.weight
        weight.view(torch.int32)[0, 0] ^= 1
    assert weights_checksum(model) != weights_checksum(other)


def test_a_weight_that_is_written_later_is_noticed(make_llama: Callable[..., Any]) -> None:
    model = make_llama()
    before = weights_checksum(model)
    assert weights_checksum(model) == before
    with torch.no_grad():
        model.model.norm.weight.mul_(1.5)
    after = weights_checksum(model)
    assert after != before
    model.model.norm.weight = torch.nn.Parameter(torch.ones(32))
    assert weights_checksum(model) == before


def test_the_type_of_the_weights_counts(make_llama: Callable[..., Any]) -> None:
    wide = fingerprint_of(make_llama())
    narrow = fingerprint_of(make_llama().to(torch.bfloat16))
    assert wide.kv_dtype == "float32"
    assert narrow.kv_dtype == "bfloat16"
    assert wide.weights_revision != narrow.weights_revision


def test_weights_that_are_elsewhere_are_refused(make_llama: Callable[..., Any]) -> None:
    with pytest.raises(FingerprintError, match="not in memory") as caught:
        weights_checksum(make_llama().to("meta"))
    assert caught.value.field == "fingerprint.weights_revision"


def test_a_known_commit_is_taken_and_a_given_revision_wins(
    make_llama: Callable[..., Any],
) -> None:
    model = make_llama()
    model.config._commit_hash = "0123abc"
    assert fingerprint_of(model).weights_revision == "0123abc"
    assert fingerprint_of(model, revision="v2").weights_revision == "v2"
    model.config.quantization_config = {"bits": 4}
    quantized = fingerprint_of(model).weights_revision
    assert quantized.startswith("0123abc quantized sha256:")


def test_merged_adapters_void_the_commit(make_llama: Callable[..., Any]) -> None:
    model = make_llama()
    model.config._commit_hash = "0123abc"
    model.model.layers[0].mlp.merged = True
    assert fingerprint_of(model).weights_revision == weights_checksum(model)


def test_a_folder_is_named_without_its_path(make_llama: Callable[..., Any], tmp_path: Path) -> None:
    for parent in ("one", "two"):
        make_llama().save_pretrained(tmp_path / parent / "llama-x")
    names = {
        fingerprint_of(
            transformers.AutoModelForCausalLM.from_pretrained(tmp_path / parent / "llama-x").eval()
        )
        for parent in ("one", "two")
    }
    assert len(names) == 1
    assert names.pop().model == "llama-x"
    assert fingerprint_of(make_llama(), name="mine").model == "mine"


def test_rotary_settings_count(make_llama: Callable[..., Any]) -> None:
    plain = fingerprint_of(make_llama())
    far = fingerprint_of(
        make_llama(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4})
    )
    assert plain.rope != far.rope
    assert json.loads(far.rope)["layers"][0]["factor"] == 4.0


def test_old_and_new_forms_of_rotary_settings_are_one() -> None:
    new = SimpleNamespace(
        rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
        max_position_embeddings=64,
    )
    old = SimpleNamespace(
        rope_theta=10_000,
        rope_scaling={"type": "linear", "factor": 2.0},
        max_position_embeddings=64,
    )
    assert rope.canonical_text(new) == rope.canonical_text(old)


def test_settings_that_are_too_long_are_hashed_and_still_count() -> None:
    def text(last: float) -> str:
        factors = [1.0] * 500 + [last]
        return rope.canonical_text(
            SimpleNamespace(rope_theta=1e4, rope_scaling={"type": "longrope", "f": factors})
        )

    assert text(1.0).startswith("sha256:")
    assert text(1.0) == text(1.0)
    assert text(1.0) != text(2.0)


def test_a_model_without_rotary_embedding_says_none() -> None:
    assert rope.canonical_text(SimpleNamespace()) == "none"


def test_the_tokenizer_counts_but_not_how_it_was_last_used(tmp_path: Path) -> None:
    first, same = tokenizer(tmp_path), tokenizer(tmp_path)
    other = tokenizer(tmp_path, c=3)
    checksum = tokenizer_checksum(first)
    assert checksum == tokenizer_checksum(same)
    assert checksum != tokenizer_checksum(other)
    first(["a", "a b a"], padding=True, truncation=True, max_length=2)
    assert tokenizer_checksum(first) == checksum


def test_a_slow_tokenizer_is_known_by_its_vocabulary() -> None:
    def slow(vocabulary: dict[str, int]) -> Any:
        return SimpleNamespace(
            get_vocab=lambda: vocabulary, added_tokens_decoder={0: "?"}, init_kwargs={"unk": "?"}
        )

    assert tokenizer_checksum(slow({"a": 1})) == tokenizer_checksum(slow({"a": 1}))
    assert tokenizer_checksum(slow({"a": 1})) != tokenizer_checksum(slow({"a": 2}))


class Adapted(Module):  # type: ignore[misc]  # torch has no types here
    """Looks as a model does that PEFT has put an adapter into."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.lora_A = torch.nn.ModuleDict(
            {name: torch.nn.Linear(2, 2, bias=False) for name in ("one", "two")}
        )
        for layer in self.lora_A.values():
            torch.nn.init.constant_(layer.weight, scale)
        self.peft_config = {"one": "LoraConfig(r=2)", "two": "LoraConfig(r=2)"}
        self.active_adapters = ["one"]


def test_an_active_adapter_is_named_with_its_weights() -> None:
    model = Adapted(0.5)
    assert active_adapters(model) == ("one",)
    identity = adapter_identity(model)
    assert identity.startswith("one sha256:")
    assert identity == adapter_identity(Adapted(0.5))
    assert identity != adapter_identity(Adapted(0.25))
    model.active_adapters = ["two"]
    assert adapter_identity(model) != identity


def test_an_adapter_that_is_off_is_none() -> None:
    model = Adapted(0.5)
    model.lora_A.disable_adapters = True
    assert active_adapters(model) == ()
    assert adapter_identity(model) == "none"


@pytest.mark.parametrize(
    "other",
    [
        {"b": torch.zeros(2, 4)},
        {"a": torch.zeros(4, 2)},
        {"a": torch.zeros(2, 8, dtype=torch.float16)},
    ],
    ids=["name", "shape", "type"],
)
def test_the_same_bytes_under_another_name_shape_or_type_differ(other: dict[str, Any]) -> None:
    one = weights_checksum(torch.nn.ParameterDict({"a": torch.zeros(2, 4)}))
    assert one == weights_checksum(torch.nn.ParameterDict({"a": torch.zeros(2, 4)}))
    assert one != weights_checksum(torch.nn.ParameterDict(other))
