"""Fingerprint of a transformers model: which computation made its KV.

Two workers may share KV only if their fingerprints are equal, so that a field which cannot be
told from the model is computed from its bytes, never guessed.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch

from kvorum.client.engines import rope
from kvorum.client.engines.kv_cache import (
    CacheShape,
    Model,
    base_model,
    text_config,
)
from kvorum.client.engines.rope import canonical_json, text_checksum
from kvorum.core import limits
from kvorum.core.errors import FingerprintError
from kvorum.core.fingerprint import Fingerprint

Tokenizer: TypeAlias = Any
"""A transformers tokenizer, fast or slow."""

NO_ADAPTER: Final = "none"
NO_TOKENIZER: Final = "none"

_WeightsState: TypeAlias = "tuple[tuple[int, int], ...]"
_checksums: weakref.WeakKeyDictionary[torch.nn.Module, tuple[_WeightsState, str]] = (
    weakref.WeakKeyDictionary()
)


def fingerprint_of(
    model: Model,
    tokenizer: Tokenizer | None = None,
    *,
    name: str | None = None,
    revision: str | None = None,
    block_tokens: int = limits.BLOCK_TOKENS_DEFAULT,
) -> Fingerprint:
    """Build the fingerprint of the KV that `model` computes in this process.

    Args:
        model: a causal language model of transformers, with or without PEFT adapters.
        tokenizer: its tokenizer; None if prompts come as token ids, which then is part of the
            identity too.
        name: name of the model; None for the one that its configuration knows.
        revision: commit or release of the weights; None for the commit that the model was loaded
            from, and for a checksum over all weights if there is none. Weights that were changed
            after loading, by training for instance, need a revision of their own.
        block_tokens: tokens a block.

    Returns:
        A fingerprint whose layers, heads and element type were read from the model's own cache.

    Raises:
        InvalidArgumentError: the model's KV cannot be cached; see `CacheShape.probe`.
        FingerprintError: a field is out of its range, or the weights are not in memory.
    """
    shape = CacheShape.probe(model)
    return Fingerprint(
        model=name or _name(model),
        weights_revision=_revision(model, revision),
        tokenizer=NO_TOKENIZER if tokenizer is None else tokenizer_checksum(tokenizer),
        adapter=adapter_identity(model),
        kv_dtype=shape.kv_dtype,
        layout="LKHTD",
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_size=shape.head_size,
        rope=rope.canonical_text(text_config(model)),
        tp_size=1,
        pp_size=1,
        cp_size=1,
        block_tokens=block_tokens,
        codec_class="lossless",
    )


def weights_checksum(model: torch.nn.Module) -> str:
    """Return "sha256:" and the SHA-256 over the name, type, shape and bytes of every weight.

    The result is kept for as long as the model lives and no weight is written to.

    Raises:
        FingerprintError: a weight is not in memory, as when it was offloaded to disk.
    """
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    state = _weights_state(tensors.values())
    known = _checksums.get(model)
    if known is not None and state is not None and known[0] == state:
        return known[1]
    text = _tensors_checksum(tensors)
    if state is not None:
        _checksums[model] = (state, text)
    return text


def tokenizer_checksum(tokenizer: Tokenizer) -> str:
    """Return the tokenizer's class, "sha256:" and the SHA-256 of all that decides its token ids."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        content = {
            "vocabulary": tokenizer.get_vocab(),
            "added": {
                str(key): str(token) for key, token in tokenizer.added_tokens_decoder.items()
            },
            "settings": {key: repr(value) for key, value in tokenizer.init_kwargs.items()},
        }
    else:
        content = json.loads(backend.to_str())
        # How the last call padded or cut is state, not identity.
        content.pop("padding", None)
        content.pop("truncation", None)
    return f"{type(tokenizer).__name__} {text_checksum(canonical_json(content))}"


def adapter_identity(model: Model) -> str:
    """Return "none", or the names of the active PEFT adapters and a checksum over them.

    Raises:
        FingerprintError: an adapter's weight is not in memory.
    """
    active = active_adapters(model)
    if not active:
        return NO_ADAPTER
    settings = {name: repr(model.peft_config[name]) for name in active}
    tensors = {
        key: tensor.detach()
        for key, tensor in model.state_dict().items()
        if any(name in key.split(".") for name in active)
    }
    checksum = _tensors_checksum(tensors, prefix=canonical_json(settings))
    return f"{'+'.join(active)} {checksum}"


def active_adapters(model: Model) -> tuple[str, ...]:
    """Return the names of the adapters that change what `model` computes now, in their order."""
    if not getattr(model, "peft_config", None):
        return ()
    if any(getattr(module, "disable_adapters", False) is True for module in model.modules()):
        return ()
    active = model.active_adapters
    names: Iterable[str] = active() if callable(active) else active
    return tuple(names)


def _name(model: Model) -> str:
    base = base_model(model)
    name = str(getattr(base, "name_or_path", "") or type(base).__name__)
    # A folder differs from host to host for the same model; its weights are told by the revision.
    return Path(name).resolve().name if Path(name).is_dir() else name


def _revision(model: Model, revision: str | None) -> str:
    base = base_model(model)
    merged = any(getattr(module, "merged", False) is True for module in base.modules())
    commit = None if merged else getattr(base.config, "_commit_hash", None)
    text = revision or commit or weights_checksum(base)
    quantization = getattr(base.config, "quantization_config", None)
    if quantization is None:
        return text
    as_dict = quantization if isinstance(quantization, Mapping) else quantization.to_dict()
    return f"{text} quantized {text_checksum(canonical_json(as_dict))}"


def _weights_state(tensors: Iterable[torch.Tensor]) -> _WeightsState | None:
    """Return what changes when a weight is replaced or written to; None if that cannot be seen."""
    tensors = list(tensors)
    if any(tensor.is_inference() for tensor in tensors):
        return None
    return tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)  # noqa: SLF001


def _tensors_checksum(tensors: Mapping[str, torch.Tensor], prefix: str = "") -> str:
    digest = hashlib.sha256(prefix.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor.device.type == "meta":
            raise FingerprintError(
                f"the weight {name} is not in memory; pass revision=",
                field="fingerprint.weights_revision",
            )
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(flat.numpy().data)
    return f"sha256:{digest.hexdigest()}"
