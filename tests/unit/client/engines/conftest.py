"""Tiny models for the connectors' unit tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def make_llama() -> Callable[..., Any]:
    """Build a Llama with random weights; settings of its configuration may be given."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(**settings: object) -> Any:
        torch.manual_seed(7)
        sizes = {
            "vocab_size": 128,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "bos_token_id": 0,
            "eos_token_id": None,
            "pad_token_id": 0,
        }
        config = transformers.LlamaConfig(**{**sizes, **settings})
        return transformers.LlamaForCausalLM(config).eval()

    return make
