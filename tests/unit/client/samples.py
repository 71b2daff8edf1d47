"""Fingerprints, noise and cluster maps for the tests of the client's pure parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kvorum.core.fingerprint import Fingerprint
from kvorum.placement import ClusterMap, Member, SlotMap


def build(**changes: object) -> Fingerprint:
    """Return a fingerprint of small blocks: [4 layers, 2, 2 heads, 16 tokens, 8 elements]."""
    fields: dict[str, object] = {
        "model": "m", "weights_revision": "r", "tokenizer": "t", "adapter": "none",
        "kv_dtype": "float16", "layout": "LKHTD", "layers": 4, "kv_heads": 2, "head_size": 8,
        "rope": "none", "tp_size": 1, "pp_size": 1, "cp_size": 1, "block_tokens": 16,
        "codec_class": "lossless",
    }  # fmt: skip
    return Fingerprint.from_mapping(fields | changes)


def noise(shape: tuple[int, ...], dtype: str, seed: int = 0) -> npt.NDArray[Any]:
    """Return random bits, NaNs and infinities among them."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(size), dtype=kind).reshape(shape)


def build_map(zones: str = "abc", shards: int = 2) -> ClusterMap:
    """Return a map of one member of each shard in each zone, named `n-<zone>-<shard>`."""
    members = tuple(
        Member(f"n-{zone}-{shard}", zone, shard, f"127.0.0.1:{1000 + 10 * at + shard}")
        for at, zone in enumerate(zones)
        for shard in range(shards)
    )
    return ClusterMap("test", 1, members, SlotMap.even(shards))
