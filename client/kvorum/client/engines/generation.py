"""What a generation returns, and which options of the model's `generate` it leaves free."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import LogitsProcessorList

from kvorum.client.engines.kv_cache import Model
from kvorum.client.engines.prefix import Prefix
from kvorum.core.errors import InvalidArgumentError

_TAKEN_OPTIONS: Final = frozenset(
    {
        "assistant_model",
        "attention_mask",
        "cache",
        "cache_implementation",
        "input_ids",
        "inputs",
        "inputs_embeds",
        "past_key_values",
        "prompt_lookup_num_tokens",
        "return_dict_in_generate",
        "use_cache",
    }
)
"""Options of `generate` that decide about the cache or the shape of the result, as this does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The result of one prompt.

    Attributes:
        tokens: generated token ids, an end token included.
        text: the decoded tokens; None without a tokenizer.
        prompt_tokens: tokens of the prompt.
        cached_tokens: tokens of the prompt that the model did not compute; always fewer than
            `prompt_tokens`, because the last token's output is needed.
        ttft_s: seconds from the call until the first token's logits were known.
        total_s: seconds from the call until the last token.
        store_queued: blocks that were queued for the background store.
        prefix: how the cache was read; None if it was not asked.
    """

    tokens: tuple[int, ...]
    text: str | None
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float
    total_s: float
    store_queued: int
    prefix: Prefix | None


class FirstLogits:
    """A logits processor that changes nothing, and notes when the first logits were known."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002  # the library's signature
        """Return `scores` as they are."""
        if not self.at:
            if scores.is_cuda:
                torch.cuda.synchronize(scores.device)
            self.at = time.perf_counter()
        return scores


def generate_arguments(
    model: Model,
    options: Mapping[str, object],
    first: FirstLogits,
    *,
    greedy: bool,
    max_new_tokens: int,
) -> dict[str, Any]:
    """Return the arguments of `model.generate` besides the prompt and the cache.

    Raises:
        InvalidArgumentError: an option interferes with the cache, or more than one sequence is
            asked for.
    """
    if max_new_tokens < 1:
        raise InvalidArgumentError(
            f"max_new_tokens is {max_new_tokens}", field="max_new_tokens", limit="at least 1"
        )
    for name in options:
        if name in _TAKEN_OPTIONS:
            raise InvalidArgumentError(
                f"{name} is decided by the generator", field=name, limit="not given"
            )
    arguments: dict[str, Any] = dict(options)
    if greedy:
        arguments = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1, **arguments}
    for name in ("num_beams", "num_return_sequences"):
        asked = arguments.get(name, getattr(model.generation_config, name, None))
        if asked not in (None, 1):
            raise InvalidArgumentError(f"{name} is {asked}", field=name, limit="1")
    others = arguments.get("logits_processor", ())
    arguments["logits_processor"] = LogitsProcessorList([first, *others])
    arguments["max_new_tokens"] = max_new_tokens
    arguments["return_dict_in_generate"] = False
    return arguments
