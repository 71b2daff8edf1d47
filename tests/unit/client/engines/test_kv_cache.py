"""Goal: only caches that can be cut into blocks are accepted, and bytes go through unchanged.

Method: real models of transformers with random weights, one for each kind of cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kvorum.client.engines import kv_cache  # noqa: E402
from kvorum.client.engines.identity import fingerprint_of  # noqa: E402
from kvorum.client.engines.kv_cache import CacheShape  # noqa: E402
from kvorum.core.errors import FingerprintError, InvalidArgumentError  # noqa: E402

pytestmark = pytest.mark.engine

SIZES = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_shape_is_read_from_the_cache(make_llama: Callable[..., Any], dtype: str) -> None:
    model = make_llama().to(getattr(torch, dtype))
    shape = CacheShape.probe(model)
    assert (shape.layers, shape.kv_heads, shape.head_size) == (2, 2, 8)
    assert shape.kv_dtype == dtype
    assert shape.tokens_max is None


def test_a_sliding_window_is_refused() -> None:
    config = transformers.MistralConfig(**SIZES, sliding_window=16)
    model = transformers.MistralForCausalLM(config).eval()
    with pytest.raises(InvalidArgumentError, match="SlidingWindow") as caught:
        CacheShape.probe(model)
    assert caught.value.field == "model"


def test_a_hybrid_cache_is_refused() -> None:
    config = transformers.Gemma3TextConfig(
        **SIZES, sliding_window=16, layer_types=["full_attention", "sliding_attention"]
    )
    model = transformers.Gemma3ForCausalLM(config).eval()
    with pytest.raises(InvalidArgumentError, match=r"layer 1 is a .*SlidingWindow"):
        CacheShape.probe(model)


def test_an_encoder_decoder_is_refused() -> None:
    config = transformers.T5Config(
        vocab_size=32, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    with pytest.raises(InvalidArgumentError, match="encoder"):
        CacheShape.probe(model)


def test_a_state_space_model_is_refused() -> None:
    config = transformers.MambaConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, state_size=4
    )
    model = transformers.MambaForCausalLM(config).eval()
    with pytest.raises(InvalidArgumentError) as caught:
        CacheShape.probe(model)
    assert caught.value.field == "model"


def test_a_window_that_is_switched_off_is_full_attention() -> None:
    config = transformers.MistralConfig(**SIZES, sliding_window=None)
    assert CacheShape.probe(transformers.MistralForCausalLM(config).eval()).layers == 2


def test_a_rotary_embedding_that_changes_with_length_limits_the_prompt(
    make_llama: Callable[..., Any],
) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    assert CacheShape.probe(make_llama(rope_parameters=rope)).tokens_max == 256


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kv_dtype", "bfloat16"),
        ("layers", 4),
        ("kv_heads", 4),
        ("head_size", 16),
        ("tp_size", 2),
        ("pp_size", 2),
        ("cp_size", 2),
        ("layout", "opaque"),
    ],
)
def test_a_fingerprint_of_another_shape_is_refused(
    make_llama: Callable[..., Any], field: str, value: object
) -> None:
    model = make_llama()
    fingerprint = fingerprint_of(model)
    shape = CacheShape.probe(model)
    shape.check(fingerprint)
    with pytest.raises(FingerprintError) as caught:
        shape.check(replace(fingerprint, **{field: value}))  # type: ignore[arg-type]  # by name
    assert caught.value.field == f"fingerprint.{field}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_copying_out_and_filling_in_changes_no_bit(
    make_llama: Callable[..., Any], dtype: Any
) -> None:
    model = make_llama().to(dtype)
    shape = CacheShape.probe(model)
    live = kv_cache.new_cache(model)
    with torch.inference_mode():
        model(torch.arange(40)[None], **{kv_cache.cache_argument(model): live})
    before = kv_cache.layers_of(live)
    kv = kv_cache.copy_out(before, shape, 0, 40)
    assert tuple(kv.shape) == (2, 2, 2, 40, 8)
    again = kv_cache.new_cache(model)
    kv_cache.fill(again, kv, shape.devices)
    assert again.get_seq_length() == 40
    for (keys, values), (keys_again, values_again) in zip(
        before, kv_cache.layers_of(again), strict=True
    ):
        assert torch.equal(keys, keys_again)
        assert torch.equal(values, values_again)
    middle = kv_cache.copy_out(before, shape, 16, 32)
    assert torch.equal(middle, kv[:, :, :, 16:32])


def test_filling_in_shares_memory_and_the_forward_pass_does_not_write_to_it(
    make_llama: Callable[..., Any],
) -> None:
    model = make_llama()
    shape = CacheShape.probe(model)
    kv = torch.randn(2, 2, 2, 16, 8)
    copy = kv.clone()
    cache = kv_cache.new_cache(model)
    kv_cache.fill(cache, kv, shape.devices)
    assert cache.layers[0].keys.data_ptr() == kv.data_ptr()
    with torch.inference_mode():
        model(torch.arange(4)[None], **{kv_cache.cache_argument(model): cache})
    assert cache.get_seq_length() == 20
    assert torch.equal(kv, copy)


def test_bytes_held_are_counted() -> None:
    layers = [(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))] * 2
    assert kv_cache.nbytes(layers) == 2 * 2 * 24 * 4
