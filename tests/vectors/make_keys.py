"""Writes keys.json: test vectors for docs/keys.md.

    python tests/vectors/make_keys.py           rewrite keys.json
    python tests/vectors/make_keys.py --check   fail if it would change

It implements the document with hashlib and struct alone and shares no code with Kvorum, so that
the test which compares the two compares two readings of the document.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("keys.json")
SECRET = bytes(range(32))

PLAIN: dict[str, Any] = {
    "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "weights_revision": "12fd25f77366fa6b3b4b768ec3050bf629380bac",
    "tokenizer": "HuggingFaceTB/SmolLM2-135M-Instruct@12fd25f",
    "adapter": "none",
    "kv_dtype": "bfloat16",
    "layout": "LKHTD",
    "layers": 30,
    "kv_heads": 3,
    "head_size": 64,
    "rope": "default;theta=100000",
    "tp_size": 1,
    "pp_size": 1,
    "cp_size": 1,
    "block_tokens": 128,
    "codec_class": "lossless",
}
FOREIGN = {
    "model": "модель/七B",
    "weights_revision": "überprüft-2026",
    "tokenizer": "токенизатор 🧩",
    "adapter": "e\u0301 is not \u00e9",
    "kv_dtype": "float8_e4m3fn",
    "layout": "opaque",
    "layers": 4_294_967_295,
    "rope": '{"factor": 8.0}\n\t\u0000\u007f',
    "tp_size": 8,
    "pp_size": 2,
    "cp_size": 4,
    "codec_class": "int8-per-channel",
}


def canonical(fingerprint: dict[str, Any]) -> bytes:
    out = b"kvorum.fingerprint.v1\x00"
    for name, value in fingerprint.items():
        out += struct.pack("<H", len(name)) + name.encode("ascii")
        if isinstance(value, str):
            text = value.encode("utf-8")
            out += b"s" + struct.pack("<H", len(text)) + text
        else:
            out += b"u" + struct.pack("<Q", value)
    return out


def progression(start: int, step: int, count: int) -> list[int]:
    return [(start + step * i) % 2**32 for i in range(count)]


def vector(
    name: str, changes: dict[str, Any], tokens: dict[str, int] | list[int], tenant: str = "default"
) -> dict[str, Any]:
    fingerprint = PLAIN | changes
    ids = tokens if isinstance(tokens, list) else progression(**tokens)
    size = fingerprint["block_tokens"]
    salt = hashlib.sha3_256(
        b"kvorum.tenant-salt.v1\x00" + SECRET + b"\x00" + tenant.encode("ascii")
    ).digest()
    root = hashlib.sha3_512(canonical(fingerprint) + salt).digest()
    links = [root]
    for begin in range(0, len(ids) - size + 1, size):
        block = struct.pack(f"<{size}I", *ids[begin : begin + size])
        links.append(hashlib.sha3_512(links[-1] + block).digest())
    keys = links[1:]

    inside = [i for i in range(1, len(links)) if i * size <= 1024]
    prompt_id = links[inside[-1]] if inside else links[min(1, len(keys))]
    segment = 2048 // size
    firsts = [keys[i // segment * segment] for i in range(len(keys))]
    return {
        "name": name,
        "cluster_secret": SECRET.hex(),
        "tenant": tenant,
        "fingerprint": fingerprint,
        "tokens": tokens,
        "canonical": canonical(fingerprint).hex(),
        "digest": hashlib.sha3_512(canonical(fingerprint)).hexdigest(),
        "salt": salt.hex(),
        "root": root.hex(),
        "keys": [key.hex() for key in keys],
        "prompt_id": prompt_id.hex(),
        "blocks_per_segment": segment,
        "slots": [int(first.hex(), 16) >> (512 - 14) for first in firsts],
    }


def run(count: int, start: int = 1, step: int = 1) -> dict[str, int]:
    return {"start": start, "step": step, "count": count}


def vectors() -> list[dict[str, Any]]:
    return [
        vector("one full block", {}, run(128)),
        vector("one token", {}, [0]),
        vector("one token less than a block", {}, run(127)),
        vector("one token more than a block", {}, run(129)),
        vector("the greatest and the smallest ids", {"block_tokens": 16}, [0, 2**32 - 1] * 8),
        vector("ids whose bytes differ in order", {"block_tokens": 16}, run(32, 0x01020304)),
        vector("another tenant", {}, run(128), tenant="acme.eu-west_1"),
        vector("text beyond ASCII, every field changed", FOREIGN, run(300)),
        vector("blocks of 16, two segments", {"block_tokens": 16}, run(2100, 7, 65_537)),
        vector("blocks of 48: 42 a segment, 1,008 tokens name the prompt",
               {"block_tokens": 48}, run(4100, 0, 3)),
        vector("blocks of 128, just below 1,024 tokens", {}, run(1023)),
        vector("blocks of 128, exactly 1,024 tokens", {}, run(1024)),
        vector("blocks of 128, four segments", {}, run(6300, 4_294_967_000, 12_345)),
        vector("blocks of 2,048, shorter than a block", {"block_tokens": 2048}, run(2047)),
        vector("blocks of 2,048: the first block names the prompt",
               {"block_tokens": 2048}, run(6144)),
        vector("blocks of 1,024", {"block_tokens": 1024}, run(5000)),
        vector("blocks of 1,040: one a segment, the first names the prompt",
               {"block_tokens": 1040}, run(3120)),
    ]  # fmt: skip


def main() -> int:
    text = json.dumps(vectors(), indent=1, ensure_ascii=True) + "\n"
    if "--check" in sys.argv[1:]:
        return int(not FILE.exists() or FILE.read_text(encoding="ascii") != text)
    FILE.write_text(text, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
