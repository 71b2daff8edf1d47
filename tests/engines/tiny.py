"""Tiny models, prompts, clients, and a way to see a model's logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kvorum.client import Client  # noqa: E402
from kvorum.client.engines import kv_cache  # noqa: E402
from kvorum.client.engines.transformers import CachedGenerator, GeneratorSettings  # noqa: E402

BLOCK_TOKENS: Final = 16
VOCABULARY: Final = 512


def make_model(dtype: Any = torch.float32, *, seed: int = 7, **settings: object) -> Any:
    """Build a Llama with random weights that never ends an answer by itself."""
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "bos_token_id": 0,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    config = transformers.LlamaConfig(**{**sizes, **settings})
    return transformers.LlamaForCausalLM(config).to(dtype).eval()


def make_prompt(length: int, *, seed: int = 1) -> Any:
    """Return `length` token ids drawn from a seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (length,), generator=generator)


def generator_of(
    model: Any, client: Client, tokenizer: Any = None, **settings: Any
) -> CachedGenerator:
    """Return a generator that waits for the cluster as long as it takes.

    So small a model recomputes in less time than a busy machine may need to answer.
    """
    patient = {"fetch_min_s": 5.0, **settings}
    return CachedGenerator(
        model, client, tokenizer=tokenizer, settings=GeneratorSettings(**patient)
    )


@dataclass
class Capture:
    """A logits processor that keeps the logits of every step."""

    steps: list[Any] = field(default_factory=list)

    def __call__(self, _: Any, scores: Any) -> Any:
        self.steps.append(scores.clone())
        return scores

    def equals(self, other: Capture) -> bool:
        """Whether both saw the same logits, bit for bit, in every step."""
        if len(self.steps) != len(other.steps):
            return False
        return all(map(torch.equal, self.steps, other.steps))


def prefill(model: Any, tokens: Any) -> Any:
    """Return the model's live cache after `tokens`."""
    cache = kv_cache.new_cache(model)
    with torch.inference_mode():
        model(
            input_ids=tokens[None],
            attention_mask=torch.ones_like(tokens)[None],
            use_cache=True,
            **{kv_cache.cache_argument(model): cache},
        )
    return cache


def keep(cache: Any, tokens: int) -> None:
    """Forget all but the first `tokens` tokens of a live cache."""
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[..., :tokens, :], layer.values[..., :tokens, :]


def go_on(model: Any, tokens: Any, cache: Any, capture: Capture, steps: int) -> tuple[int, ...]:
    """Generate greedily from a live cache that holds the beginning of `tokens`."""
    with torch.inference_mode():
        out = model.generate(
            input_ids=tokens[None],
            attention_mask=torch.ones_like(tokens)[None],
            max_new_tokens=steps,
            do_sample=False,
            logits_processor=transformers.LogitsProcessorList([capture]),
            **{kv_cache.cache_argument(model): cache},
        )
    return tuple(out[0, len(tokens) :].tolist())
