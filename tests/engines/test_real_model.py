"""Goal: the promise holds for a real model, whose numbers are not as tame as random ones.

Method: SmolLM2 in float32 and bfloat16, with the demo's own prompts and a node of its own.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from kvorum.cli.demo import model as demo_model  # noqa: E402
from kvorum.cli.demo import script  # noqa: E402
from kvorum.cli.exits import UsageError  # noqa: E402
from kvorum.client.engines import kv_cache  # noqa: E402
from kvorum.client.engines.transformers import fingerprint_of  # noqa: E402
from tests.engines.conftest import OpenClient  # noqa: E402
from tests.engines.tiny import Capture, generator_of, go_on, prefill  # noqa: E402

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(300)]

BLOCK_TOKENS = 128
SHARED = 4 * BLOCK_TOKENS


@pytest.fixture(scope="module")
def ready() -> demo_model.ReadyModel:
    try:
        demo_model.check_installed(demo_model.REAL)
    except UsageError as error:
        pytest.skip(str(error))
    demo_model.quiet_libraries()
    cache = demo_model.cache_directory()
    found = demo_model.find_ready(demo_model.REAL, cache)
    return found or demo_model.make_ready(demo_model.REAL, cache)


def tokens_of(tokenizer: Any, question: str) -> Any:
    """Return about 550 tokens: the beginning of the knowledge, and a question."""
    head = tokenizer(script.KNOWLEDGE)["input_ids"][: SHARED + 20]
    return torch.tensor(head + tokenizer("\n\n" + question)["input_ids"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_real_model_goes_on_bit_for_bit(
    open_client: OpenClient, ready: demo_model.ReadyModel, dtype: Any
) -> None:
    tokenizer, model = demo_model.load(ready)
    model = model.to(dtype)
    tokens = tokens_of(tokenizer, script.QUESTIONS[0])
    fingerprint = fingerprint_of(model, tokenizer, name=ready.name, revision=ready.revision)
    client = open_client(fingerprint)
    live = prefill(model, tokens[:SHARED])
    shape = kv_cache.CacheShape.probe(model)
    kv = kv_cache.copy_out(kv_cache.layers_of(live), shape, 0, SHARED)
    assert client.store(tokens[:SHARED], kv).stored == 4
    wanted, seen = Capture(), Capture()
    answer = go_on(model, tokens, live, wanted, 8)
    with generator_of(model, client, tokenizer) as generator:
        result = generator.generate(tokens, max_new_tokens=8, logits_processor=[seen])
        assert result.cached_tokens == SHARED
        assert seen.equals(wanted)
        assert result.tokens == answer
        if dtype == torch.float32:
            plain = generator.generate(tokens, max_new_tokens=8, cached=False)
            assert plain.tokens == result.tokens
