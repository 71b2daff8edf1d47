"""A fresh process that looks a prompt up and fetches it, and says what it saw."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kvorum.client import Client
from tests.integration.support.prompts import PATIENCE_S
from tests.integration.support.values import TENSORS

KINDS: Final[dict[str, Callable[[list[int]], Any]]] = {
    "list": list,
    "tuple": tuple,
    "int64": lambda tokens: np.array(tokens, dtype=np.int64),
    "uint32": lambda tokens: np.array(tokens, dtype=np.uint32),
    "big-endian": lambda tokens: np.array(tokens, dtype=">i4"),
    "numpy scalars": lambda tokens: [np.int32(token) for token in tokens],
}
"""Forms in which token ids may come; all name the same blocks."""


def look(endpoints: list[str], namespace: str, tokens: list[int], kind: str) -> dict[str, Any]:
    """Return the keys and a digest of the bytes that this process finds."""
    with Client(endpoints, namespace=namespace, fingerprint=TENSORS, create=False) as client:
        hit = client.lookup(KINDS[kind](tokens), budget_s=PATIENCE_S)
        fetched = client.fetch(hit, deadline_s=PATIENCE_S)
        return {
            "keys": [block.key.hex() for block in hit.blocks],
            "tokens": fetched.tokens,
            "digest": hashlib.sha256(
                b"" if fetched.kv is None else fetched.kv.tobytes()
            ).hexdigest(),
            "hash": hash("the same word in every process"),
        }


if __name__ == "__main__":
    print(json.dumps(look(**json.loads(sys.argv[1]))))  # noqa: T201  # read by the test
