"""Rotary settings of a model's configuration: their canonical text, and where they change.

Releases of transformers tell them in different forms; the forms that mean the same become one.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from kvorum.core import limits

_LENGTH_DEPENDENT: Final = frozenset({"dynamic", "longrope"})


def canonical_text(config: Any) -> str:  # noqa: ANN401  # a configuration of transformers
    """Return the rotary settings as canonical JSON, "none" without any.

    Settings that are too long for a fingerprint, such as a factor for every frequency, are
    replaced by their SHA-256.
    """
    layers = settings(config)
    if not layers:
        return "none"
    partial = getattr(config, "partial_rotary_factor", None)
    for entry in layers:
        entry.setdefault("partial_rotary_factor", 1.0 if partial is None else partial)
    positions = getattr(config, "max_position_embeddings", None)
    text = canonical_json({"layers": layers, "positions": positions})
    return text if len(text) <= limits.FINGERPRINT_TEXT_BYTES_MAX else text_checksum(text)


def tokens_max(config: Any) -> int | None:  # noqa: ANN401  # a configuration of transformers
    """Return the prompt length up to which the rotary embedding is the same; None for any."""
    bounds = [
        kind.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        or config.max_position_embeddings
        for kind in settings(config)
        if kind["rope_type"] in _LENGTH_DEPENDENT
    ]
    return min(bounds, default=None)


def settings(config: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # see above
    """Return the rotary settings of a model's configuration, in the form of newer releases.

    One entry for each kind of layer that has settings of its own, usually one; none for a model
    without rotary embedding. Every entry has "rope_type" and "rope_theta".
    """
    told = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = [entry for entry in told.values() if isinstance(entry, dict)] or [told]
    theta = getattr(config, "rope_theta", None)
    if not told and theta is None:
        return []
    found = []
    for kind in kinds:
        entry = {name: value for name, value in kind.items() if name != "type"}
        entry.setdefault("rope_type", kind.get("type", "default"))
        entry.setdefault("rope_theta", theta)
        if entry["rope_theta"] is not None:
            entry["rope_theta"] = float(entry["rope_theta"])
        found.append(entry)
    return found


def canonical_json(content: object) -> str:
    """Return `content` as the one JSON text that equal contents have."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)


def text_checksum(text: str) -> str:
    """Return "sha256:" and the SHA-256 of `text`."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
