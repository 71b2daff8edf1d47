"""Goal: options that would go around the cache, or ask for several sequences, are refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from kvorum.client.engines.generation import FirstLogits, generate_arguments  # noqa: E402
from kvorum.client.engines.settings import GeneratorSettings  # noqa: E402
from kvorum.core.errors import InvalidArgumentError  # noqa: E402

pytestmark = pytest.mark.engine

MODEL = SimpleNamespace(generation_config=SimpleNamespace(num_beams=1, num_return_sequences=None))


@pytest.mark.parametrize(
    "option",
    ["past_key_values", "cache", "use_cache", "attention_mask", "input_ids", "assistant_model"],
)
def test_options_of_the_cache_are_refused(option: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        generate_arguments(MODEL, {option: 1}, FirstLogits(), greedy=True, max_new_tokens=1)
    assert caught.value.field == option


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("option", ["num_beams", "num_return_sequences"])
def test_several_sequences_are_refused(option: str, greedy: bool) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        generate_arguments(MODEL, {option: 2}, FirstLogits(), greedy=greedy, max_new_tokens=1)
    assert caught.value.field == option


def test_beams_of_the_models_own_configuration_are_refused_unless_greedy() -> None:
    model = SimpleNamespace(generation_config=SimpleNamespace(num_beams=4))
    with pytest.raises(InvalidArgumentError):
        generate_arguments(model, {}, FirstLogits(), greedy=False, max_new_tokens=1)
    arguments = generate_arguments(model, {}, FirstLogits(), greedy=True, max_new_tokens=1)
    assert arguments["num_beams"] == 1
    assert arguments["do_sample"] is False


def test_other_options_pass_and_processors_are_kept() -> None:
    first = FirstLogits()
    arguments = generate_arguments(
        MODEL,
        {"top_k": 5, "logits_processor": [print]},
        first,
        greedy=False,
        max_new_tokens=3,
    )
    assert arguments["top_k"] == 5
    assert arguments["max_new_tokens"] == 3
    assert list(arguments["logits_processor"]) == [first, print]
    assert "do_sample" not in arguments


def test_there_must_be_something_to_generate() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        generate_arguments(MODEL, {}, FirstLogits(), greedy=True, max_new_tokens=0)
    assert caught.value.field == "max_new_tokens"


def test_the_first_logits_are_noted_once_and_unchanged() -> None:
    first = FirstLogits()
    scores = torch.tensor([[1.0, 2.0]])
    assert first(torch.tensor([[1]]), scores) is scores
    noted = first.at
    assert noted > 0
    first(torch.tensor([[1, 2]]), scores)
    assert first.at == noted


@pytest.mark.parametrize(
    "settings",
    [
        {"lookup_budget_s": 0.0},
        {"lease_s": 61.0},
        {"fetch_share": 1.5},
        {"fetch_min_s": 6.0},
        {"store_deadline_s": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        GeneratorSettings(**settings)  # type: ignore[arg-type]  # by name
    assert caught.value.field == f"settings.{next(iter(settings))}"
