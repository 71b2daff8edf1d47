"""What a generation may cost, what it returns, and which options of `generate` it leaves free."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import LogitsProcessorList

from kvorum.client.engines.kv_cache import Model
from kvorum.client.engines.prefix import Prefix
from kvorum.core import limits
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
class GeneratorSettings:
    """Bounds of what a generator may spend on the cache.

    Attributes:
        lookup_budget_s: seconds that a lookup may take; None for the client's own budget.
        lease_s: seconds for which found blocks are to stay readable until they are fetched.
        fetch_deadline_s: seconds that a fetch may take at most.
        fetch_share: share of the time to recompute a prefix that its fetch may take, once the
            model's speed is known; above 0, at most 1.
        store_generated: whether full blocks that hold generated tokens are stored too, for
            conversations that go on.
        store_deadline_s: seconds that one store in the background may take.
        store_jobs_max: prompts whose blocks may wait to be stored.
        store_bytes_max: bytes of KV that may be held for that.

    Raises:
        InvalidArgumentError: a value is out of its range.
    """

    lookup_budget_s: float | None = None
    lease_s: float = limits.LEASE_S_DEFAULT
    fetch_deadline_s: float = 5.0
    fetch_share: float = 0.25
    store_generated: bool = True
    store_deadline_s: float = 30.0
    store_jobs_max: int = 8
    store_bytes_max: int = 1 << 30

    def __post_init__(self) -> None:
        bounds = {
            "lease_s": limits.LEASE_S_MAX,
            "fetch_deadline_s": limits.CALL_S_MAX,
            "fetch_share": 1.0,
            "store_deadline_s": limits.CALL_S_MAX,
        }
        if self.lookup_budget_s is not None:
            bounds["lookup_budget_s"] = limits.CALL_S_MAX
        for name, high in bounds.items():
            value = getattr(self, name)
            if not 0 < value <= high:
                raise InvalidArgumentError(
                    f"{name} is {value!r}", field=f"settings.{name}", limit=f"above 0 to {high:g}"
                )


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
