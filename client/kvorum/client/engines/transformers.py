"""Connector to Hugging Face transformers: a causal language model that never computes KV twice.

`CachedGenerator` looks a prompt up, fetches the longest stored prefix straight into the model's
cache, lets the model compute the rest, and stores new full blocks in the background. Whatever
happens to the cluster, it generates.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import torch

from kvorum.client.engines.generation import (
    FirstLogits,
    Generation,
    generate_arguments,
)
from kvorum.client.engines.identity import (
    NO_ADAPTER,
    Tokenizer,
    active_adapters,
    fingerprint_of,
)
from kvorum.client.engines.kv_cache import (
    CacheShape,
    LayerKv,
    Model,
    cache_argument,
    copy_out,
    fill,
    layers_of,
    nbytes,
    new_cache,
    text_config,
)
from kvorum.client.engines.prefix import Prefix, PrefixReader
from kvorum.client.engines.settings import GeneratorSettings
from kvorum.client.engines.store_queue import StoreJob, StoreQueue, StoreStats
from kvorum.core.errors import FingerprintError, InvalidArgumentError
from kvorum.core.keys import Tokens, token_array

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from transformers.cache_utils import DynamicCache

    from kvorum.client import Client, StoreResult

__all__ = ["CachedGenerator", "Generation", "GeneratorSettings", "Prefix", "fingerprint_of"]

_LOG: Final = logging.getLogger(__name__)

_PACE_TOKENS: Final = 64


class CachedGenerator:
    """A causal language model of transformers with its prompts' KV in a Kvorum cluster.

    Prompts of a batch run one by one. Padding them to one length would change the shapes of the
    model's matrix products, and with them the last bits of the KV, and some models derive
    positions from padded input: a row of a padded batch is not exactly the prompt alone.

    Not to be used from several threads at a time, as its model isn't either.

    Args:
        model: the model, in evaluation mode.
        client: a client whose fingerprint is `fingerprint_of` this model.
        tokenizer: the model's tokenizer; needed for prompts and results as text.
        settings: bounds of what the cache may cost.

    Raises:
        InvalidArgumentError: the model's KV cannot be cached, or the model is in training mode.
        FingerprintError: the client's fingerprint is not that of this model; the error names the
            field.

    Example:
        >>> with CachedGenerator(model, client, tokenizer=tokenizer) as generator:  # doctest: +SKIP
        ...     print(generator.generate("Once upon a time", max_new_tokens=20).text)
    """

    def __init__(
        self,
        model: Model,
        client: Client,
        *,
        tokenizer: Tokenizer | None = None,
        settings: GeneratorSettings | None = None,
    ) -> None:
        self._settings = settings or GeneratorSettings()
        if model.training:
            raise InvalidArgumentError(
                "the model is in training mode", field="model", limit="after model.eval()"
            )
        self._shape = CacheShape.probe(model)
        self._fingerprint = client.fingerprint
        self._shape.check(self._fingerprint)
        self._adapters = active_adapters(model)
        _check_adapter(self._adapters, self._fingerprint.adapter)
        self._model = model
        self._client = client
        self._tokenizer = tokenizer
        self._cache_argument = cache_argument(model)
        self._reader = PrefixReader(client, self._shape, self._settings)
        self._bypassed: Counter[str] = Counter()
        self._queue = StoreQueue(self._settings.store_jobs_max, self._settings.store_bytes_max)
        # How fast the model is bounds every fetch, the first one too.
        positions = getattr(text_config(model), "max_position_embeddings", None) or _PACE_TOKENS
        sample = [0] * min(_PACE_TOKENS, positions - 1)
        self.generate(sample, max_new_tokens=1, cached=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def store_stats(self) -> StoreStats:
        """Counters of the background store."""
        return self._queue.stats

    @property
    def bypassed(self) -> Counter[str]:
        """Prompts that were generated without the cache, by reason, and errors of the client."""
        return self._bypassed + self._reader.failures

    def generate(
        self,
        prompt: str | Tokens,
        *,
        max_new_tokens: int = 64,
        greedy: bool = True,
        cached: bool = True,
        **options: object,
    ) -> Generation:
        """Generate for one prompt.

        Args:
            prompt: text, to which the tokenizer adds its special tokens; or token ids, as they
                are.
            max_new_tokens: most tokens to generate.
            greedy: take the likeliest token each time; False lets the model's generation
                configuration decide.
            cached: False neither reads nor stores: plain generation by the same code.
            options: further options of the model's `generate`, `stopping_criteria` for instance.

        Raises:
            InvalidArgumentError: the prompt is empty or not token ids, or an option interferes
                with the cache or asks for more than one sequence.
        """
        started = time.perf_counter()
        tokens = self._tokens(prompt)
        first = FirstLogits()
        arguments = generate_arguments(
            self._model, options, first, greedy=greedy, max_new_tokens=max_new_tokens
        )
        prefix = self._read(tokens) if cached and self._may_use_cache(tokens.size) else None
        cache = new_cache(self._model)
        known = 0 if prefix is None else self._restore(cache, prefix, tokens.size)
        sequence = self._run(tokens, cache, arguments)
        total_s = time.perf_counter() - started
        spent_s = 0.0 if prefix is None else prefix.lookup_s + prefix.fetch_s
        self._reader.pace.observe(tokens.size - known, first.at - started - spent_s)
        queued = 0
        if prefix is not None:
            queued = self._store(sequence, tokens.size, cache, prefix.tokens)
        new = tuple(sequence[tokens.size :])
        text = None
        if self._tokenizer is not None:
            text = self._tokenizer.decode(new, skip_special_tokens=True)
        return Generation(
            tokens=new,
            text=text,
            prompt_tokens=tokens.size,
            cached_tokens=known,
            ttft_s=first.at - started,
            total_s=total_s,
            store_queued=queued,
            prefix=prefix,
        )

    def generate_batch(
        self,
        prompts: Iterable[str | Tokens],
        *,
        max_new_tokens: int = 64,
        greedy: bool = True,
        cached: bool = True,
        **options: object,
    ) -> list[Generation]:
        """Generate for prompts of any lengths, one after the other; see `generate`."""
        return [
            self.generate(
                prompt, max_new_tokens=max_new_tokens, greedy=greedy, cached=cached, **options
            )
            for prompt in prompts
        ]

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Wait until all queued blocks were sent; return whether that came true in time.

        Raises:
            InternalError: the background store met a defect.
        """
        return self._queue.flush(timeout_s)

    def close(self, timeout_s: float = 30.0) -> bool:
        """Send what is queued, within the time, and end the background thread; see `flush`.

        Model and client stay open: they belong to the caller.
        """
        return self._queue.close(timeout_s)

    def _tokens(self, prompt: str | Tokens) -> npt.NDArray[np.uint32]:
        if not isinstance(prompt, str):
            return token_array(prompt)
        if self._tokenizer is None:
            raise InvalidArgumentError(
                "prompt is text, but there is no tokenizer", field="prompt", limit="token ids"
            )
        return token_array(self._tokenizer(prompt)["input_ids"])

    def _may_use_cache(self, prompt_tokens: int) -> bool:
        """Whether the KV that the model computes now is what the client's fingerprint says."""
        limit = self._shape.tokens_max
        if self._model.training:
            reason = "the model is in training mode"
        elif active_adapters(self._model) != self._adapters:
            reason = "another adapter is active"
        elif limit is not None and prompt_tokens > limit:
            reason = "the rotary embedding changes at this length"
        else:
            return True
        if not self._bypassed[reason]:
            _LOG.warning("generating without the cache from now on, while %s", reason)
        self._bypassed[reason] += 1
        return False

    def _read(self, tokens: npt.NDArray[np.uint32]) -> Prefix:
        if tokens.size < self._fingerprint.block_tokens:
            return Prefix()
        return self._reader.read(tokens)

    def _restore(self, cache: DynamicCache, prefix: Prefix, prompt_tokens: int) -> int:
        """Put what was read into `cache`; return the tokens that the model need not compute."""
        if prefix.kv is None:
            return 0
        # The model must see at least one token to say what follows it.
        known = min(prefix.tokens, prompt_tokens - 1)
        fill(cache, prefix.kv[:, :, :, :known], self._shape.devices)
        return known

    def _run(
        self, tokens: npt.NDArray[np.uint32], cache: DynamicCache, arguments: dict[str, Any]
    ) -> list[int]:
        """Let the model compute what `cache` lacks and generate; return all tokens."""
        ids = torch.from_numpy(tokens.astype("int64"))[None].to(self._model.device)
        with torch.inference_mode():
            sequences = self._model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                **{self._cache_argument: cache},
                **arguments,
            )
        sequence: list[int] = sequences[0].tolist()
        return sequence

    def _store(
        self, sequence: Sequence[int], prompt_tokens: int, cache: DynamicCache, read_tokens: int
    ) -> int:
        """Queue the full blocks that were not read from the cluster; return their number."""
        # The last generated token was never put through the model, and so has no KV.
        held = min(cache.get_seq_length(), len(sequence))
        if not self._settings.store_generated:
            held = min(held, prompt_tokens)
        if self._shape.tokens_max is not None:
            held = min(held, self._shape.tokens_max)
        size = self._fingerprint.block_tokens
        first, blocks = read_tokens // size, held // size
        if blocks <= first:
            return 0
        layers = layers_of(cache)
        run = partial(self._send, list(sequence[: blocks * size]), first, layers)
        queued = self._queue.submit(StoreJob(run, nbytes(layers), blocks - first))
        return blocks - first if queued else 0

    def _send(self, tokens: list[int], first: int, layers: Sequence[LayerKv]) -> StoreResult:
        """Copy the blocks from `first` on out of the cache and store them; runs in the queue."""
        start = first * self._fingerprint.block_tokens
        with torch.inference_mode():
            kv = copy_out(layers, self._shape, start, len(tokens))
        return self._client.store(
            tokens, kv, first_block=first, deadline_s=self._settings.store_deadline_s
        )


def _check_adapter(active: Sequence[str], told: str) -> None:
    if bool(active) == (told != NO_ADAPTER):
        return
    raise FingerprintError(
        f"adapter is {told!r}, but the model's active adapters are {list(active)}",
        field="fingerprint.adapter",
        limit="the adapters that are active",
    )
