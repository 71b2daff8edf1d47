"""Torch side of the KV: what a model's cache looks like, filling it, and copying blocks out of it.

Everything here is exact: tensors are viewed or copied, never converted.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from kvorum.client.engines import rope
from kvorum.core.errors import FingerprintError, InvalidArgumentError

if TYPE_CHECKING:
    from kvorum.core.fingerprint import Fingerprint

Model: TypeAlias = Any
"""A transformers causal language model; its library has no types that can be checked here."""

LayerKv: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Keys and values of one layer, each [1, kv_heads, tokens, head_size]."""

DTYPES: Final[dict[str, torch.dtype]] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
"""The element types that a cache may have, by their names in a fingerprint."""

_PROBE_TOKENS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What a model's KV cache holds.

    Attributes:
        layers: layers with KV.
        kv_heads: KV heads a layer.
        head_size: elements a head.
        kv_dtype: element type, a key of `DTYPES`.
        tokens_max: tokens up to which the KV of a token depends on the tokens before it alone;
            None without such a limit. Some rotary embeddings change for longer prompts.
        devices: where each layer keeps its KV.
    """

    layers: int
    kv_heads: int
    head_size: int
    kv_dtype: str
    tokens_max: int | None
    devices: tuple[torch.device, ...]

    @classmethod
    def probe(cls, model: Model) -> Self:
        """Run two tokens through `model` and look at the cache that they leave.

        Configurations describe caches in too many ways to be trusted; the cache itself doesn't.

        Raises:
            InvalidArgumentError: the model's cache is not one pair of equal-shaped tensors for
                every layer and every token, as with sliding windows, linear attention, latent
                attention, or heads split over devices.
        """
        keys, values = zip(*_probe_layers(model), strict=True)
        shapes = {tuple(tensor.shape) for tensor in (*keys, *values)}
        dtypes = {tensor.dtype for tensor in (*keys, *values)}
        if len(shapes) != 1 or len(dtypes) != 1:
            raise _unsupported(
                f"its layers differ: shapes {sorted(shapes)}, types {sorted(map(str, dtypes))}",
                "one shape and one type for the keys and values of all layers",
            )
        _, kv_heads, tokens, head_size = shapes.pop()
        if tokens != _PROBE_TOKENS:
            raise _unsupported(f"it kept {tokens} of {_PROBE_TOKENS} tokens", "every token")
        config = text_config(model)
        whole = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        if kv_heads != whole:
            raise _unsupported(
                f"it holds {kv_heads} of {whole} KV heads", "all KV heads in one process"
            )
        return cls(
            layers=len(keys),
            kv_heads=kv_heads,
            head_size=head_size,
            kv_dtype=_dtype_name(dtypes.pop()),
            tokens_max=rope.tokens_max(config),
            devices=tuple(tensor.device for tensor in keys),
        )

    def check(self, fingerprint: Fingerprint) -> None:
        """Check that KV under `fingerprint` has this shape.

        Raises:
            FingerprintError: a field differs; the error names it.
        """
        wanted = {
            "layout": "LKHTD",
            "kv_dtype": self.kv_dtype,
            "layers": self.layers,
            "kv_heads": self.kv_heads,
            "head_size": self.head_size,
            "tp_size": 1,
            "pp_size": 1,
            "cp_size": 1,
        }
        for name, value in wanted.items():
            told = getattr(fingerprint, name)
            if told != value:
                raise FingerprintError(
                    f"{name} is {told!r}, but the model's cache has {value!r}",
                    field=f"fingerprint.{name}",
                    limit=str(value),
                )

    def buffer(self, tokens: int) -> torch.Tensor:
        """Return uninitialized host memory [layers, 2, kv_heads, tokens, head_size].

        It is pinned if layers live on a GPU.
        """
        shape = (self.layers, 2, self.kv_heads, tokens, self.head_size)
        pinned = any(device.type == "cuda" for device in self.devices)
        return torch.empty(shape, dtype=DTYPES[self.kv_dtype], pin_memory=pinned)


def new_cache(model: Model) -> DynamicCache:
    """Return an empty cache of the kinds of layers that the model's configuration names."""
    return DynamicCache(config=base_model(model).config)


def fill(cache: DynamicCache, kv: torch.Tensor, devices: Sequence[torch.device]) -> None:
    """Give every layer of an empty cache its keys and values.

    Args:
        cache: a cache of `new_cache` that has seen no token.
        kv: [layers, 2, kv_heads, tokens, head_size] in host memory. Layers in host memory get
            views of it; the first forward pass copies them into tensors of the cache's own.
        devices: where each layer keeps its KV.
    """
    for layer, pair, device in zip(cache.layers, kv, devices, strict=True):
        keys, values = pair.to(device, non_blocking=True)
        _start(layer, keys[None], values[None])


def layers_of(cache: DynamicCache) -> list[LayerKv]:
    """Return the keys and values that `cache` holds now.

    Dynamic layers never write in place, so that these tensors stay as they are.
    """
    return [(layer.keys, layer.values) for layer in cache.layers]


def copy_out(layers: Sequence[LayerKv], shape: CacheShape, start: int, stop: int) -> torch.Tensor:
    """Copy tokens `start` to `stop` to host memory: [layers, 2, kv_heads, tokens, head_size]."""
    out = shape.buffer(stop - start)
    for target, (keys, values) in zip(out, layers, strict=True):
        target[0].copy_(keys[0, :, start:stop])
        target[1].copy_(values[0, :, start:stop])
    return out


def nbytes(layers: Sequence[LayerKv]) -> int:
    """Return the bytes that holding on to these tensors keeps in memory."""
    return sum(int(keys.nbytes) + int(values.nbytes) for keys, values in layers)


def cache_argument(model: Model) -> str:
    """Return the name under which the model takes a cache.

    Older releases of transformers call it `past_key_values`; newer ones call it `cache`, and warn
    about the old name.
    """
    parameters = inspect.signature(base_model(model).forward).parameters
    for name in ("cache", "past_key_values"):
        if name in parameters:
            return name
    raise _unsupported("it takes no cache", "a causal language model of transformers")


def _probe_layers(model: Model) -> Iterator[LayerKv]:
    config = base_model(model).config
    if getattr(config, "is_encoder_decoder", False):
        raise _unsupported("it is an encoder and a decoder", "a decoder-only model")
    cache = new_cache(model)
    _check_layers(cache)
    ids = torch.zeros((1, _PROBE_TOKENS), dtype=torch.long, device=model.device)
    with torch.inference_mode():
        model(input_ids=ids, use_cache=True, **{cache_argument(model): cache})
    _check_layers(cache)
    if not cache.layers:
        raise _unsupported("it left its cache empty", "a model that fills a DynamicCache")
    for keys, values in layers_of(cache):
        if keys is None or values is None or keys.dim() != 4 or values.dim() != 4:
            raise _unsupported("a layer has no keys and values of its own", "KV in every layer")
        yield keys, values


def _check_layers(cache: DynamicCache) -> None:
    for index, layer in enumerate(cache.layers):
        if type(layer) is not DynamicLayer:
            raise _unsupported(
                f"layer {index} is a {type(layer).__name__}",
                "full attention in every layer; hybrid and sliding-window caches forget tokens",
            )


def _start(layer: DynamicLayer, keys: torch.Tensor, values: torch.Tensor) -> None:
    # Older releases look at the keys alone to learn type and device.
    wanted = len(inspect.signature(layer.lazy_initialization).parameters)
    layer.lazy_initialization(*(keys, values)[:wanted])
    layer.keys, layer.values = keys, values


def _dtype_name(dtype: torch.dtype) -> str:
    for name, candidate in DTYPES.items():
        if candidate == dtype:
            return name
    raise _unsupported(f"its cache has elements of type {dtype}", "one of " + ", ".join(DTYPES))


def base_model(model: Model) -> Model:
    """Return the transformers model inside a PEFT wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def text_config(model: Model) -> Any:  # noqa: ANN401  # see Model
    """Return the configuration of the language model, also within a multimodal one."""
    return base_model(model).config.get_text_config(decoder=True)


def _unsupported(why: str, limit: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the KV of this model cannot be cached: {why}", field="model", limit=limit
    )
