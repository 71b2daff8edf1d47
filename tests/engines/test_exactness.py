"""Goal: what comes out of the cluster is what the model put in, to the last bit.

Method: the same model goes on from its own live cache and from the cluster's copy of it, and every
logit of every step must be equal. In float32 the answers must also equal those of a cold run; in
16 bits no prefix cache can promise that, because a prefill in two pieces rounds elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from kvorum.client.engines import kv_cache  # noqa: E402
from kvorum.client.engines.transformers import fingerprint_of  # noqa: E402
from tests.engines.conftest import OpenClient  # noqa: E402
from tests.engines.tiny import (  # noqa: E402
    BLOCK_TOKENS,
    Capture,
    generator_of,
    go_on,
    keep,
    make_model,
    make_prompt,
    prefill,
)

pytestmark = pytest.mark.engine

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bytes_out_are_bytes_in(open_client: OpenClient, dtype: Any) -> None:
    model, tokens = make_model(dtype), make_prompt(3 * BLOCK_TOKENS)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    live = kv_cache.layers_of(prefill(model, tokens))
    kv = kv_cache.copy_out(live, kv_cache.CacheShape.probe(model), 0, len(tokens))
    assert client.store(tokens, kv).stored == 3
    out = torch.empty_like(kv)
    fetched = client.fetch(client.lookup(tokens), into=out)
    assert fetched.tokens == len(tokens)
    assert torch.equal(
        out.view(torch.int32 if dtype == torch.float32 else torch.int16),
        kv.view(torch.int32 if dtype == torch.float32 else torch.int16),
    )
    alone = client.fetch(client.lookup(tokens))
    storage = {torch.float32: "<f4", torch.float16: "<f2", torch.bfloat16: "<u2"}[dtype]
    assert alone.kv is not None
    assert alone.kv.dtype == np.dtype(storage)
    assert alone.kv.tobytes() == kv.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("more", [0, 1, 5, 16, 17])
def test_logits_equal_those_of_the_live_cache(
    open_client: OpenClient, dtype: Any, more: int
) -> None:
    model, shared = make_model(dtype), 4 * BLOCK_TOKENS
    tokens = make_prompt(shared + more)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    live = prefill(model, tokens[:shared])
    shape = kv_cache.CacheShape.probe(model)
    kv = kv_cache.copy_out(kv_cache.layers_of(live), shape, 0, shared)
    assert client.store(tokens[:shared], kv).stored == 4
    if more == 0:  # the last token is computed again in any case
        for layer in live.layers:
            layer.keys, layer.values = layer.keys[..., :-1, :], layer.values[..., :-1, :]
    wanted, seen = Capture(), Capture()
    answer = go_on(model, tokens, live, wanted, 12)
    with generator_of(model, client) as generator:
        result = generator.generate(tokens, max_new_tokens=12, logits_processor=[seen])
    assert result.cached_tokens == (shared if more else shared - 1)
    assert seen.equals(wanted)
    assert result.tokens == answer


def test_every_prefix_length_gives_the_cold_answer_in_float32(open_client: OpenClient) -> None:
    model, stored, other = make_model(), make_prompt(66), make_prompt(80, seed=2)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        generator.generate(stored, max_new_tokens=1)
        assert generator.flush()
        for shared in range(67):
            tokens = torch.cat([stored[:shared], other[: 3 + shared % 5]])
            cached = generator.generate(tokens, max_new_tokens=3)
            plain = generator.generate(tokens, max_new_tokens=3, cached=False)
            assert cached.cached_tokens == shared // BLOCK_TOKENS * BLOCK_TOKENS, shared
            assert cached.tokens == plain.tokens, shared
            assert plain.cached_tokens == 0


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64])
def test_asking_again_computes_the_last_token_at_least(
    open_client: OpenClient, length: int
) -> None:
    model, tokens = make_model(), make_prompt(length)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        first = generator.generate(tokens, max_new_tokens=4)
        assert generator.flush()
        again = generator.generate(tokens, max_new_tokens=4)
        plain = generator.generate(tokens, max_new_tokens=4, cached=False)
    full = length // BLOCK_TOKENS * BLOCK_TOKENS
    assert (first.prompt_tokens, first.cached_tokens) == (length, 0)
    assert again.cached_tokens == min(full, length - 1)
    assert first.tokens == again.tokens == plain.tokens


def test_a_batch_gives_what_each_prompt_gives_alone(open_client: OpenClient) -> None:
    model, stored = make_model(), make_prompt(64)
    prompts = [
        stored[:40],
        make_prompt(3, seed=3),
        make_prompt(50, seed=4),
        stored,
        torch.cat([stored[:16], make_prompt(30, seed=5)]),
        stored[:1],
    ]
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        generator.generate(stored, max_new_tokens=1)
        assert generator.flush()
        batch = generator.generate_batch(prompts, max_new_tokens=8)
        alone = [generator.generate(item, max_new_tokens=8, cached=False) for item in prompts]
    assert [item.cached_tokens for item in batch] == [32, 0, 0, 63, 16, 0]
    assert [item.tokens for item in batch] == [item.tokens for item in alone]
    assert [item.prompt_tokens for item in batch] == [40, 3, 50, 64, 46, 1]


def test_a_conversation_goes_on_from_its_own_answer(open_client: OpenClient) -> None:
    model, tokens = make_model(torch.bfloat16), make_prompt(30)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    live = kv_cache.new_cache(model)
    answer = go_on(model, tokens, live, Capture(), 20)
    turn = torch.cat([tokens, torch.tensor(answer), make_prompt(5, seed=9)])
    keep(live, 48)  # 49 tokens have KV, of which three blocks are full
    wanted, seen = Capture(), Capture()
    go_on(model, turn, live, wanted, 6)
    with generator_of(model, client) as generator:
        first = generator.generate(tokens, max_new_tokens=20)
        assert first.tokens == answer
        assert first.store_queued == 3
        assert generator.flush()
        second = generator.generate(turn, max_new_tokens=6, logits_processor=[seen])
    assert second.cached_tokens == 48
    assert seen.equals(wanted)
