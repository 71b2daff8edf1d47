"""Bug class 2, non-deterministic or truncated hash: equal prefixes have equal keys, no others."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack

from kvorum.cli import LocalCluster
from kvorum.v1 import cache_pb2, common_pb2
from tests.integration.classes.conftest import Connect
from tests.integration.support.children import answer, child
from tests.integration.support.looker import KINDS
from tests.integration.support.prompts import PATIENCE_S, Prompt, load, same_kv, store
from tests.integration.support.values import OPAQUE, draw_bytes, draw_tokens, generator
from tests.integration.support.wire import CALL_S, Block, Wire, request_context, typed

NEVER_STORED = common_pb2.MISS_REASON_NEVER_STORED
HASH_SEEDS = ("0", "1", "random", "random", "4294967295", "random")


def test_fresh_processes_name_the_same_blocks(
    cluster: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: keys depend on tokens alone: not on the process, its hash seed, nor the integer type.

    Method: store here; let six fresh processes, each with another `PYTHONHASHSEED` and another
    form of the token ids, look up and fetch; compare keys and bytes. That Python's own hash
    differs between them shows that the seeds took effect.
    """
    prompt = Prompt.draw(5, seed)
    client = connect(cluster.endpoints, name)
    store(client, prompt)
    keys = [block.key.hex() for block in client.lookup(prompt.tokens, budget_s=PATIENCE_S).blocks]
    task = {"endpoints": list(cluster.endpoints), "namespace": name, "tokens": prompt.tokens}
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                child("looker", {**task, "kind": kind}, {"PYTHONHASHSEED": hash_seed})
            )
            for kind, hash_seed in zip(KINDS, HASH_SEEDS, strict=True)
        ]
        seen = [answer(process) for process in children]

    assert len(keys) == 5
    assert [one["keys"] for one in seen] == [keys] * len(HASH_SEEDS)
    digest = hashlib.sha256(prompt.kv.tobytes()).hexdigest()
    assert [one["digest"] for one in seen] == [digest] * len(HASH_SEEDS)
    assert len({one["hash"] for one in seen}) > 1


def test_keys_that_share_their_first_64_bits_never_cross(wire: Wire, name: str, seed: int) -> None:
    """Goal: all 512 bits count. Method: collide keys on purpose.

    One group of keys shares the first 8 bytes, another all bytes but the last. Every stored key
    answers with its own bytes, every other key of the groups is absent, and deleting one leaves
    the others.
    """
    scope = wire.create(name, OPAQUE)
    draw = generator(seed)
    head, long_head = draw.bytes(8), draw.bytes(63)
    keys = [head + draw.bytes(56) for _ in range(24)]
    keys += [long_head + bytes((last,)) for last in range(24)]
    blocks = [Block(key, draw_bytes(512, seed, i)) for i, key in enumerate(keys)]
    present, absent = blocks[::2], blocks[1::2]
    results = wire.put(scope, present)
    assert {r.outcome for r in results} == {cache_pb2.PUT_OUTCOME_STORED}

    got = wire.get_blocks(scope, present)
    assert [bytes(g.data) for g in got] == [b.payload for b in present]
    for missing in wire.get_blocks(scope, absent):
        assert (missing.miss, bytes(missing.data)) == (common_pb2.MISS_REASON_NEVER_STORED, b"")
    for block in absent:
        assert wire.lookup(scope, [block.key]).present_blocks == 0

    assert wire.delete(scope, present[:1]) == [1]
    left = wire.get_blocks(scope, present)
    assert bytes(left[0].data) == b""
    assert [bytes(g.data) for g in left[1:]] == [b.payload for b in present[1:]]


def test_a_node_computes_the_keys_that_clients_do(wire: Wire, name: str, seed: int) -> None:
    """Goal: a client in another language may leave the hashing to the node.

    Method: look a prompt up by its token ids, with a part of a block behind, and by its keys.
    """
    scope = wire.create(name, OPAQUE)
    tokens = draw_tokens(5 * 16 + 7, seed)
    blocks = scope.blocks(tokens, [draw_bytes(100, seed, i) for i in range(3)])
    wire.put(scope, blocks)
    request = cache_pb2.LookupRequest(
        context=request_context(), namespace=scope.ref, token_ids=tokens, describe=True
    )
    with typed(wire.address):
        answer = wire.cache.Lookup(request, timeout=CALL_S)
    assert answer.present_blocks == 3
    assert [block.miss for block in answer.blocks] == [0, 0, 0, *[NEVER_STORED] * 2]
    assert list(answer.blocks[:3]) == list(wire.lookup(scope, [b.key for b in blocks]).blocks)


def test_one_other_token_ends_the_prefix_there(
    cluster: LocalCluster, connect: Connect, name: str, seed: int
) -> None:
    """Goal: a key names the whole prefix. Method: change one token at many positions.

    The hit ends with the block before the change, and its bytes are right.
    """
    prompt = Prompt.draw(6, seed)
    client = connect(cluster.endpoints, name)
    store(client, prompt)
    positions = generator(seed, 1).integers(0, len(prompt.tokens), 12).tolist()
    for position in [0, 15, 16, len(prompt.tokens) - 1, *positions]:
        tokens = list(prompt.tokens)
        tokens[position] ^= 1
        fetched = load(client, tokens)
        assert fetched.tokens == position // 16 * 16
        assert fetched.tokens == 0 or same_kv(fetched, prompt)
