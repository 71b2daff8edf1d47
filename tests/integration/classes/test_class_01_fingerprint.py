"""Bug class 1, under-specified key: KV of one model, type or layout is never served to another."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from kvorum.cli import LocalCluster
from kvorum.client import Fingerprint, MissReason
from kvorum.core.errors import FingerprintError, NamespaceConflictError, NamespaceNotFoundError
from kvorum.v1 import cache_pb2, common_pb2, namespace_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.prompts import PATIENCE_S, Prompt, load, same_kv, store
from tests.integration.support.values import CHANGED, TENSORS, draw_bytes, draw_tokens, with_field
from tests.integration.support.wire import CALL_S, Wire, request_context, typed

FIELDS = [field.name for field in fields(Fingerprint)]


def test_the_tests_know_every_field() -> None:
    """Goal: a field that is added later is tested too. Method: compare the names."""
    assert list(CHANGED) == FIELDS
    assert all(getattr(TENSORS, name) != value for name, value in CHANGED.items())


@pytest.mark.parametrize("field", FIELDS)
def test_a_node_serves_no_bytes_across_fingerprints(
    wire: Wire, name: str, seed: int, field: str
) -> None:
    """Goal: even a caller with the right keys gets nothing under another fingerprint.

    Method: store two blocks, then ask for the same keys with the digest of a fingerprint in which
    one field differs; the store under it is refused, and the blocks stay as they were.
    """
    scope = wire.create(name, TENSORS)
    payloads = [draw_bytes(4096, seed, i) for i in range(2)]
    blocks = scope.blocks(draw_tokens(32, seed), payloads)
    assert [r.outcome for r in wire.put(scope, blocks)] == [cache_pb2.PUT_OUTCOME_STORED] * 2
    other = scope.under(with_field(field, CHANGED[field]))

    answer = wire.lookup(other, [block.key for block in blocks])
    assert answer.present_blocks == 0
    assert [b.miss for b in answer.blocks] == [common_pb2.MISS_REASON_FINGERPRINT] * 2
    for got in wire.get_blocks(other, blocks):
        assert (got.miss, bytes(got.data)) == (common_pb2.MISS_REASON_FINGERPRINT, b"")
    assert isinstance(wire.refusal(other, blocks), FingerprintError)

    assert [bytes(got.data) for got in wire.get_blocks(scope, blocks)] == payloads


@pytest.mark.parametrize("field", [name for name in FIELDS if name != "cp_size"])
def test_another_fingerprint_names_other_blocks(
    cluster: LocalCluster, connect: Connect, name: str, seed: int, field: str
) -> None:
    """Goal: the same tokens under another fingerprint are other keys: a miss, never bytes.

    Method: store under one namespace; look the tokens up through a client whose namespace has a
    fingerprint with one other field. (No client reads tensors that are split by context.)
    """
    prompt = Prompt.draw(4, seed)
    writer = connect(cluster.endpoints, name)
    store(writer, prompt)
    other = with_field(field, CHANGED[field])
    reader = connect(cluster.endpoints, f"{name}-2", other, writer="engine-1")

    hit = reader.lookup(prompt.tokens, budget_s=PATIENCE_S)

    assert (hit.tokens, hit.reason) == (0, MissReason.NEVER_STORED)
    assert reader.fetch(hit).tokens == 0
    assert same_kv(load(writer, prompt.tokens), prompt)


@pytest.mark.parametrize("field", ["kv_dtype", "weights_revision", "block_tokens"])
def test_a_client_with_another_fingerprint_is_told(
    cluster: LocalCluster, connect: Connect, name: str, seed: int, field: str
) -> None:
    """Goal: a worker that serves another model under a namespace's name learns it, by type.

    Method: open the namespace a second time with one field changed.
    """
    prompt = Prompt.draw(2, seed)
    store(connect(cluster.endpoints, name), prompt)
    stranger = connect(cluster.endpoints, name, with_field(field, CHANGED[field]))

    with pytest.raises((NamespaceConflictError, FingerprintError)):
        stranger.connect()
    hit = stranger.lookup(prompt.tokens, budget_s=PATIENCE_S)
    assert (hit.tokens, hit.reason) == (0, MissReason.FINGERPRINT)


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_refuses_the_namespace(wire: Wire, name: str, field: str) -> None:
    """Goal: no field has a default. Method: leave one out; the error names it, nothing is made."""
    whole = namespace_pb2.Fingerprint(**asdict(TENSORS))
    whole.ClearField(field)  # type: ignore[arg-type]  # one of the names in FIELDS
    request = namespace_pb2.CreateNamespaceRequest(
        context=request_context(),
        namespace=namespace_pb2.Namespace(name=name, fingerprint=whole),
    )
    with pytest.raises(FingerprintError) as caught, typed(wire.address):
        wire.namespaces.CreateNamespace(request, timeout=CALL_S)
    assert caught.value.field.endswith(f"fingerprint.{field}")

    with pytest.raises(NamespaceNotFoundError), typed(wire.address):
        wire.namespaces.GetNamespace(
            namespace_pb2.GetNamespaceRequest(context=request_context(), name=name),
            timeout=CALL_S,
        )


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_refuses_the_client(field: str) -> None:
    """Goal: a client cannot even be made. Method: a mapping without one field."""
    values = asdict(TENSORS)
    del values[field]
    with pytest.raises(FingerprintError) as caught:
        Fingerprint.from_mapping(values)
    assert caught.value.field == f"fingerprint.{field}"


def test_a_store_without_a_fingerprint_is_refused(wire: Wire, name: str, seed: int) -> None:
    """Goal: a store must say what made its bytes. Method: leave the digest out of the opening."""
    scope = wire.create(name, TENSORS)
    block = scope.blocks(draw_tokens(16, seed), [draw_bytes(4096, seed)])[0]
    opening = cache_pb2.PutRequest(
        open=cache_pb2.PutOpen(
            context=request_context(),
            namespace=common_pb2.NamespaceRef(name=name),
            items=[block.item],
            writer="w",
        )
    )
    with pytest.raises(FingerprintError) as caught:
        wire.send(iter([opening]))
    assert "fingerprint_digest" in caught.value.field
    assert wire.lookup(scope, [block.key]).present_blocks == 0


def test_a_rank_that_does_not_exist_reads_nothing(wire: Wire, name: str, seed: int) -> None:
    """Goal: the rank is part of what is asked for. Method: ask a one-part block for part 1."""
    scope = wire.create(name, TENSORS)
    block = scope.blocks(draw_tokens(16, seed), [draw_bytes(4096, seed)])[0]
    wire.put(scope, [block])

    first, second = wire.get(
        scope, [cache_pb2.GetItem(block=block.ref, part=part) for part in (0, 1)]
    )

    assert bytes(first.data) == block.payload
    assert (second.miss, bytes(second.data)) == (common_pb2.MISS_REASON_FINGERPRINT, b"")
