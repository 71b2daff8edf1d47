"""Goal: the generator keeps generating whatever the cluster does, and refuses what it can't do.

Method: tiny models against a real node that is killed, stopped, or was never there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kvorum.cli.demo import vocabulary  # noqa: E402
from kvorum.cli.local_cluster import LocalCluster  # noqa: E402
from kvorum.cli.ports import free_ports  # noqa: E402
from kvorum.client import ClientSettings, MissReason  # noqa: E402
from kvorum.client.engines.transformers import (  # noqa: E402
    CachedGenerator,
    fingerprint_of,
)
from kvorum.core.errors import FingerprintError, InvalidArgumentError  # noqa: E402
from tests.engines.conftest import OpenClient  # noqa: E402
from tests.engines.tiny import BLOCK_TOKENS, generator_of, make_model, make_prompt  # noqa: E402

pytestmark = pytest.mark.engine


def test_results_say_what_happened(open_client: OpenClient) -> None:
    model, tokens = make_model(), make_prompt(40)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        first = generator.generate(tokens, max_new_tokens=3)
        assert (first.store_queued, first.cached_tokens, len(first.tokens)) == (2, 0, 3)
        assert first.prefix is not None
        assert first.prefix.reason is MissReason.NEVER_STORED
        assert 0 < first.ttft_s <= first.total_s
        assert generator.flush()
        assert generator.store_stats.stored == 2
        second = generator.generate(tokens, max_new_tokens=3)
        assert (second.store_queued, second.cached_tokens) == (0, 32)
        assert second.prefix is not None
        assert second.prefix.reason is None
        assert second.prefix.bytes_by_zone == {"a": 2 * BLOCK_TOKENS * 3 * 2 * 2 * 16 * 4}
        plain = generator.generate(tokens, max_new_tokens=3, cached=False)
        assert (plain.prefix, plain.store_queued, plain.text) == (None, 0, None)
        assert not generator.bypassed


def test_the_models_speed_bounds_the_first_fetch_already(open_client: OpenClient) -> None:
    model = make_model()
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        assert generator._reader.pace.seconds(1) is not None
        assert generator.store_stats.queued == 0
        assert client.stats.lookups == 0


def test_text_goes_through_the_tokenizer(open_client: OpenClient, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(vocabulary.tokenizer_json())
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file))
    model = make_model()
    client = open_client(fingerprint_of(model, tokenizer, block_tokens=BLOCK_TOKENS))
    text = "Answer the customer 's question from the knowledge below . " * 3
    ids = tokenizer(text)["input_ids"]
    with generator_of(model, client, tokenizer) as generator:
        by_text = generator.generate(text, max_new_tokens=4)
        assert generator.flush()
        by_ids = generator.generate(ids, max_new_tokens=4)
    assert by_ids.cached_tokens == len(ids) // BLOCK_TOKENS * BLOCK_TOKENS > 0
    assert by_text.tokens == by_ids.tokens
    assert by_text.text == tokenizer.decode(by_text.tokens, skip_special_tokens=True)


def test_sampling_by_the_models_own_configuration(open_client: OpenClient) -> None:
    model, tokens = make_model(), make_prompt(40)
    model.generation_config.do_sample = True
    model.generation_config.temperature = 5.0
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        greedy = generator.generate(tokens, max_new_tokens=12)
        torch.manual_seed(3)
        sampled = generator.generate(tokens, max_new_tokens=12, greedy=False)
        assert generator.generate(tokens, max_new_tokens=12).tokens == greedy.tokens
    assert sampled.tokens != greedy.tokens


def test_an_end_token_ends_the_answer_and_its_kv_is_not_stored(open_client: OpenClient) -> None:
    model, tokens = make_model(), make_prompt(30)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        free = generator.generate(tokens, max_new_tokens=4, cached=False)
        ended = generator.generate(tokens, max_new_tokens=4, eos_token_id=free.tokens[1])
        assert ended.tokens == free.tokens[:2]
        # 30 tokens and one answer have KV; the end token, the 32nd, was never put in.
        assert ended.store_queued == 1
        assert generator.flush()
        assert client.lookup(torch.cat([tokens, torch.tensor(ended.tokens)])).tokens == 16


@pytest.mark.parametrize("generated", [True, False])
def test_generated_blocks_are_stored_if_asked_for(open_client: OpenClient, generated: bool) -> None:
    model, tokens = make_model(), make_prompt(20)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client, store_generated=generated) as generator:
        result = generator.generate(tokens, max_new_tokens=20)
    assert result.store_queued == (2 if generated else 1)


def test_nobody_listens_and_nothing_fails(open_client: OpenClient) -> None:
    model, tokens = make_model(), make_prompt(40)
    client = open_client(
        fingerprint_of(model, block_tokens=BLOCK_TOKENS),
        endpoints=f"127.0.0.1:{free_ports(1)[0]}",
        settings=ClientSettings(store_deadline_s=1.0),
    )
    with generator_of(model, client, store_deadline_s=1.0) as generator:
        plain = generator.generate(tokens, max_new_tokens=4, cached=False)
        for _ in range(3):
            result = generator.generate(tokens, max_new_tokens=4)
            assert result.tokens == plain.tokens
            assert result.cached_tokens == 0
            assert result.prefix is not None
            assert result.prefix.reason in (MissReason.NODE_DOWN, MissReason.TIMEOUT)
        assert generator.flush()
        stats = generator.store_stats
    assert stats.stored == 0
    assert stats.queued == stats.refused == 6
    assert stats.failures.total() > 0


@pytest.mark.parametrize("end", ["kill", "pause"])
def test_a_node_that_dies_or_hangs_costs_the_hit_and_no_answer(
    fragile_cluster: LocalCluster, open_client: OpenClient, end: str
) -> None:
    model, tokens = make_model(), make_prompt(40)
    client = open_client(
        fingerprint_of(model, block_tokens=BLOCK_TOKENS),
        endpoints=fragile_cluster.endpoints,
        settings=ClientSettings(lookup_budget_s=0.5, store_deadline_s=1.0),
    )
    name = fragile_cluster.members[0].name
    with generator_of(model, client, store_deadline_s=1.0) as generator:
        client.connect()
        first = generator.generate(tokens, max_new_tokens=4)
        assert generator.flush()
        assert generator.store_stats.stored == 2
        getattr(fragile_cluster, end)(name)
        for _ in range(3):
            result = generator.generate(tokens, max_new_tokens=4)
            assert result.tokens == first.tokens
            assert result.cached_tokens == 0
        if end == "pause":
            fragile_cluster.resume(name)


def test_another_models_kv_is_never_a_hit(open_client: OpenClient) -> None:
    model, other, tokens = make_model(), make_model(seed=8), make_prompt(40)
    owner = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS), namespace="of-one-model")
    with generator_of(model, owner) as generator:
        generator.generate(tokens, max_new_tokens=2)
        assert generator.flush()
        assert generator.generate(tokens, max_new_tokens=2).cached_tokens == 32
    fingerprint = fingerprint_of(other, block_tokens=BLOCK_TOKENS)
    for namespace in ("of-one-model", "of-the-other"):
        client = open_client(fingerprint, namespace=namespace)
        with generator_of(other, client) as generator:
            result = generator.generate(tokens, max_new_tokens=2)
            plain = generator.generate(tokens, max_new_tokens=2, cached=False)
        assert result.cached_tokens == 0
        assert result.tokens == plain.tokens
        assert result.prefix is not None
        assert result.prefix.reason is (
            MissReason.FINGERPRINT if namespace == "of-one-model" else MissReason.NEVER_STORED
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [("kv_dtype", "float16"), ("layers", 6), ("head_size", 32), ("adapter", "lora")],
)
def test_a_client_of_another_computation_is_refused(
    open_client: OpenClient, field: str, value: object
) -> None:
    model = make_model()
    right = fingerprint_of(model, block_tokens=BLOCK_TOKENS)
    wrong = replace(right, **{field: value})  # type: ignore[arg-type]  # by name
    with pytest.raises(FingerprintError) as caught:
        CachedGenerator(model, open_client(wrong))
    assert caught.value.field == f"fingerprint.{field}"


def test_a_model_in_training_is_refused_and_later_bypassed(open_client: OpenClient) -> None:
    model, tokens = make_model(), make_prompt(40)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    model.train()
    with pytest.raises(InvalidArgumentError, match="training"):
        generator_of(model, client)
    model.eval()
    with generator_of(model, client) as generator:
        model.train()
        result = generator.generate(tokens, max_new_tokens=2)
        assert (result.prefix, result.store_queued) == (None, 0)
        assert generator.bypassed == {"the model is in training mode": 1}


def test_a_changed_adapter_bypasses_the_cache(open_client: OpenClient) -> None:
    model, tokens = make_model(), make_prompt(40)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        generator.generate(tokens, max_new_tokens=2)
        assert generator.flush()
        model.peft_config = {"new": object()}
        model.active_adapters = lambda: ["new"]
        result = generator.generate(tokens, max_new_tokens=2)
        assert result.cached_tokens == 0
        assert generator.bypassed == {"another adapter is active": 1}


def test_prompts_beyond_the_limit_of_a_changing_rotary_embedding_bypass_the_cache(
    open_client: OpenClient,
) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    model = make_model(max_position_embeddings=40, rope_parameters=rope)
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator:
        short = generator.generate(make_prompt(40), max_new_tokens=20)
        assert short.store_queued == 2  # the third block would reach beyond the limit
        assert generator.flush()
        long = generator.generate(make_prompt(41), max_new_tokens=2)
        assert (long.prefix, long.store_queued) == (None, 0)
        assert generator.bypassed.total() == 1


@pytest.mark.parametrize("bad", [[], [-1, 2], [1.5], [[1, 2]], "text without a tokenizer"])
def test_bad_prompts_are_refused(open_client: OpenClient, bad: Any) -> None:
    model = make_model()
    client = open_client(fingerprint_of(model, block_tokens=BLOCK_TOKENS))
    with generator_of(model, client) as generator, pytest.raises(InvalidArgumentError):
        generator.generate(bad)
