"""A prompt with its KV, and the few steps that most tests take with one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from kvorum.client import Client, ClientSettings, Fetched, Fingerprint, StoreResult
from tests.integration.support.values import TENSORS, draw_kv, draw_tokens

PATIENCE_S: Final = 20.0
"""Budget and deadline where a test is not about time: this machine may be slow."""

PATIENT: Final = ClientSettings(hedge_budget=0.0, hedge_burst=0, stall_s=5.0)
"""A client that asks the nearest replica and waits for it: no other is asked for being faster."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids of whole blocks, and the KV that some worker computed for them."""

    tokens: list[int]
    kv: npt.NDArray[np.generic]

    @classmethod
    def draw(cls, blocks: int, *seeds: int, fingerprint: Fingerprint = TENSORS) -> Self:
        """Return a prompt that `seeds` alone determine."""
        tokens = draw_tokens(blocks * fingerprint.block_tokens, *seeds)
        return cls(tokens, draw_kv(blocks, *seeds, fingerprint=fingerprint))

    def other_kv(self, *seeds: int, fingerprint: Fingerprint = TENSORS) -> Prompt:
        """Return the same tokens with other KV, as another honest worker might compute."""
        blocks = len(self.tokens) // fingerprint.block_tokens
        return Prompt(self.tokens, draw_kv(blocks, *seeds, fingerprint=fingerprint))


def store(client: Client, prompt: Prompt, *, overwrite: bool = False) -> StoreResult:
    """Store a prompt; nothing of it may be refused."""
    result = client.store(prompt.tokens, prompt.kv, overwrite=overwrite, deadline_s=PATIENCE_S)
    if result.refused:
        raise AssertionError(f"refused: {result.errors}")
    return result


def load(client: Client, tokens: list[int]) -> Fetched:
    """Look a prompt up and fetch what was found."""
    hit = client.lookup(tokens, budget_s=PATIENCE_S)
    return client.fetch(hit, deadline_s=PATIENCE_S)


def same_kv(fetched: Fetched, prompt: Prompt) -> bool:
    """Whether what was fetched is, bit for bit, the beginning of the prompt's KV."""
    if fetched.kv is None:
        return False
    return fetched.kv.tobytes() == prompt.kv[:, :, :, : fetched.tokens].tobytes()
