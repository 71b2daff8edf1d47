"""Bad input, arguments: what the client refuses itself, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pytest

from kvorum.cli import LocalCluster
from kvorum.client import Client, Fingerprint
from kvorum.core import limits
from kvorum.core.errors import (
    FingerprintError,
    InvalidArgumentError,
    NamespaceNotFoundError,
    TooLargeError,
)
from tests.integration.classes.conftest import Connect
from tests.integration.support.prompts import PATIENCE_S, Prompt
from tests.integration.support.values import OPAQUE, TENSORS, draw_tokens


@pytest.fixture
def client(cluster: LocalCluster, connect: Connect, name: str) -> Client:
    """A client whose node must never hear of what these tests give it."""
    made = connect(cluster.endpoints, name)
    made.connect()
    return made


BAD_TOKENS = [
    [],
    [1, -1] * 16,
    [1, 2**32] * 16,
    [1.0] * 32,
    [1, 2.5] * 16,
    [True] * 32,
    "text" * 16,
    b"bytes" * 16,
    np.ones((4, 16), dtype=np.int64),
    np.ones(32, dtype=np.float32),
    np.full(32, -1),
    None,
    7,
]


@pytest.mark.parametrize("tokens", BAD_TOKENS, ids=range(len(BAD_TOKENS)))
def test_bad_tokens(client: Client, tokens: object) -> None:
    """Goal: token ids that are none are refused everywhere, by name, before anything is sent."""
    kv = Prompt.draw(2, 1).kv
    calls: list[Callable[[], object]] = [
        lambda: client.lookup(tokens),  # type: ignore[arg-type]  # on purpose
        lambda: client.store(tokens, kv),  # type: ignore[arg-type]  # on purpose
        lambda: client.delete(tokens),  # type: ignore[arg-type]  # on purpose
        lambda: client.pin(tokens),  # type: ignore[arg-type]  # on purpose
        lambda: client.stat(tokens),  # type: ignore[arg-type]  # on purpose
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentError) as caught:
            call()
        assert caught.value.field == "tokens"
        assert caught.value.limit
    assert client.stats.stores == client.stats.lookups == 0


def test_too_many_tokens(client: Client) -> None:
    """Goal: a prompt over the limit is TOO_LARGE. Method: one token more."""
    tokens = np.zeros(limits.PROMPT_TOKENS_MAX + 1, dtype=np.uint32)
    with pytest.raises(TooLargeError) as caught:
        client.lookup(tokens)
    assert caught.value.field == "tokens"


GOOD = Prompt.draw(2, 1).kv
BAD_KV = [
    GOOD.astype(np.float32),
    GOOD.view(np.int16),
    GOOD[:1],
    GOOD[:, :1],
    GOOD[:, :, :2],
    GOOD[:, :, :, :31],
    GOOD[..., :4],
    GOOD[0],
    GOOD.reshape(-1),
    [bytes(4096)],
    [bytes(4096), bytes(4095)],
    b"",
    None,
    "kv",
]


@pytest.mark.parametrize("kv", BAD_KV, ids=range(len(BAD_KV)))
def test_bad_kv(client: Client, kv: object, seed: int) -> None:
    """Goal: KV of another type or shape is refused by name, and nothing of it is stored."""
    tokens = draw_tokens(32, seed)
    with pytest.raises(InvalidArgumentError) as caught:
        client.store(tokens, kv)  # type: ignore[arg-type]  # on purpose
    assert caught.value.field.startswith("kv")
    assert caught.value.limit
    assert not client.lookup(tokens, budget_s=PATIENCE_S)


def test_oversize_opaque_blocks(cluster: LocalCluster, connect: Connect, name: str) -> None:
    """Goal: a block over 64 MiB is TOO_LARGE before it is sent. Method: one byte more."""
    client = connect(cluster.endpoints, name, OPAQUE)
    with pytest.raises(TooLargeError) as caught:
        client.store(list(range(16)), [bytes(limits.PART_BYTES_MAX + 1)])
    assert caught.value.limit


@pytest.mark.parametrize(
    ("field", "value"),
    [("kv_dtype", "float12"), ("block_tokens", 17), ("layers", 0), ("layers", 2.0), ("model", "")],
)
def test_bad_fingerprints(field: str, value: object) -> None:
    """Goal: a fingerprint that cannot be is refused by name."""
    with pytest.raises(FingerprintError) as caught:
        Fingerprint.from_mapping({**asdict(TENSORS), field: value})
    assert caught.value.field == f"fingerprint.{field}"


def test_an_unknown_namespace_is_a_typed_error(
    cluster: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a client that may not make its namespace says that it is not there."""
    client = connect(cluster.endpoints, f"{name}-unknown", create=False)
    with pytest.raises(NamespaceNotFoundError):
        client.connect()
    assert not client.lookup(draw_tokens(32, seed), budget_s=PATIENCE_S)
    result = client.store(draw_tokens(32, seed), Prompt.draw(2, seed).kv)
    assert result.refused == 2
    assert {type(error) for error in result.errors} == {NamespaceNotFoundError}
