"""Fingerprint: what must be equal for the KV of one worker to be usable by another.

KV tensors are numbers that only one exact model can read. Whatever changes the numbers or
their order is a field here; no field has a default, so that nothing is left out by accident.
`docs/keys.md` specifies the canonical bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Self

from kvorum.core import limits
from kvorum.core.errors import FingerprintError, shown

_MAGIC: Final = b"kvorum.fingerprint.v1\0"

DTYPE_BYTES: Final[Mapping[str, int]] = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
}
"""Bytes of one element of every `kv_dtype`."""

LAYOUTS: Final = ("LKHTD", "opaque")
"""`LKHTD`: [layer, K or V, head, token, head element], C order. `opaque`: bytes of any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Identity of the computation that made a KV tensor.

    Attributes:
        model: name of the model, for example "HuggingFaceTB/SmolLM2-135M-Instruct".
        weights_revision: commit, checksum or release of the weights.
        tokenizer: name and revision of the tokenizer.
        adapter: LoRA or other adapter with its revision; "none" without one.
        kv_dtype: element type of the KV tensors; a key of `DTYPE_BYTES`.
        layout: order of the axes inside a block; one of `LAYOUTS`.
        layers: attention layers that have KV, over all pipeline ranks.
        kv_heads: KV heads a layer, over all tensor-parallel ranks.
        head_size: elements a head.
        rope: rotary settings as canonical text; "none" without rotary embedding.
        tp_size: tensor-parallel ranks.
        pp_size: pipeline-parallel ranks.
        cp_size: context-parallel ranks.
        block_tokens: tokens a block; a multiple of 16 up to 2,048.
        codec_class: "lossless", or the name of the lossy class whose error the reader accepts.

    Raises:
        FingerprintError: a field is empty, of the wrong type, or out of its range.
    """

    model: str
    weights_revision: str
    tokenizer: str
    adapter: str
    kv_dtype: str
    layout: str
    layers: int
    kv_heads: int
    head_size: int
    rope: str
    tp_size: int
    pp_size: int
    cp_size: int
    block_tokens: int
    codec_class: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "str":
                _check_text(field.name, value)
            else:
                _check_count(field.name, value)
        _check_choice("kv_dtype", self.kv_dtype, tuple(DTYPE_BYTES))
        _check_choice("layout", self.layout, LAYOUTS)
        block_tokens_ok = (
            self.block_tokens <= limits.BLOCK_TOKENS_MAX
            and self.block_tokens % limits.BLOCK_TOKENS_MULTIPLE == 0
        )
        if not block_tokens_ok:
            raise FingerprintError(
                f"block_tokens is {self.block_tokens}",
                field="fingerprint.block_tokens",
                limit=f"a multiple of {limits.BLOCK_TOKENS_MULTIPLE}, "
                f"at most {limits.BLOCK_TOKENS_MAX}",
            )
        if self.parts > limits.PARTS_MAX:
            raise FingerprintError(
                f"a block would have {self.parts} parts",
                field="fingerprint.tp_size",
                limit=f"tp_size * pp_size * cp_size at most {limits.PARTS_MAX}",
            )
        self._check_split("layers", "pp_size")
        self._check_split("kv_heads", "tp_size")

    def _check_split(self, whole: str, ranks: str) -> None:
        if self.layout != "opaque" and getattr(self, whole) % getattr(self, ranks):
            raise FingerprintError(
                f"{whole} ({getattr(self, whole)}) does not divide among {ranks} "
                f"({getattr(self, ranks)})",
                field=f"fingerprint.{ranks}",
                limit=f"a divisor of {whole}",
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> Self:
        """Build a fingerprint from a parsed file or message, refusing unknown or missing fields.

        Raises:
            FingerprintError: a field is missing, unknown or invalid.
        """
        names = [field.name for field in fields(cls)]
        for name in names:
            if name not in values:
                raise FingerprintError(f"{name} is missing", field=f"fingerprint.{name}")
        for name in values:
            if name not in names:
                raise FingerprintError(f"{name} is unknown", field=f"fingerprint.{name}")
        return cls(**dict(values))  # type: ignore[arg-type]  # __post_init__ checks every type

    def canonical(self) -> bytes:
        """Return the bytes that are hashed: every field with its name, in the order above."""
        out = bytearray(_MAGIC)
        for name, value in asdict(self).items():
            out += struct.pack("<H", len(name)) + name.encode()
            if isinstance(value, str):
                text = value.encode()
                out += b"s" + struct.pack("<H", len(text)) + text
            else:
                out += b"u" + struct.pack("<Q", value)
        return bytes(out)

    def digest(self) -> bytes:
        """Return SHA3-512 of the canonical bytes, 64 bytes: the name on the wire."""
        return hashlib.sha3_512(self.canonical()).digest()

    @property
    def parts(self) -> int:
        """Parts that a block is cut into: one for each rank."""
        return self.tp_size * self.pp_size * self.cp_size


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise FingerprintError(
            f"{name} must be non-empty text, not {shown(value)}", field=f"fingerprint.{name}"
        )
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise FingerprintError(
            f"{name} is not Unicode text: {error.reason}", field=f"fingerprint.{name}"
        ) from error
    if size > limits.FINGERPRINT_TEXT_BYTES_MAX:
        raise FingerprintError(
            f"{name} has {size} bytes",
            field=f"fingerprint.{name}",
            limit=f"{limits.FINGERPRINT_TEXT_BYTES_MAX} bytes",
        )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise FingerprintError(
            f"unknown {name} {shown(value)}",
            field=f"fingerprint.{name}",
            limit="one of " + ", ".join(choices),
        )


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**32:
        raise FingerprintError(
            f"{name} must be an integer, not {shown(value)}",
            field=f"fingerprint.{name}",
            limit="1 to 2**32 - 1",
        )
