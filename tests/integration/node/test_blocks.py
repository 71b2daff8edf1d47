"""Every call of CacheService, against a real node process."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kvorum.core.keys import chain
from kvorum.v1 import cache_pb2, common_pb2
from tests.integration.node.conftest import Process
from tests.integration.node.rig import MIB, OPAQUE, TENSORS, Caller, Part, chunks, part, put_frame

STORED = cache_pb2.PUT_OUTCOME_STORED
ALREADY = cache_pb2.PUT_OUTCOME_ALREADY_STORED
STAGED = cache_pb2.PUT_OUTCOME_STAGED
DATA = random.Random(9).randbytes(5 * MIB)


async def test_bytes_out_equal_bytes_in(caller: Caller) -> None:
    """Goal: parts from one byte to several frames come back bit for bit, each with its header."""
    sizes = [1, 63, 4_096, MIB - 1, MIB, MIB + 1, 3 * MIB + 17]
    parts = [part(DATA[:size]) for size in sizes]
    results = await caller.put(parts)
    assert [r.outcome for r in results] == [STORED] * len(sizes)
    assert {(tuple(r.zones), r.tier, r.replicas) for r in results} == {
        (("a",), common_pb2.TIER_EVENTUAL, 1)
    }
    got = await caller.get_parts(parts)
    assert [bytes(one.data) for one in got] == [one.data for one in parts]
    assert [one.headers for one in got] == [1] * len(parts)
    assert [one.group for one in got] == [r.group for r in results]
    assert len({r.group for r in results}) == len(parts)


async def test_the_largest_batch_goes_both_ways(caller: Caller) -> None:
    """Goal: the largest batch of the API is one call, and every item has a status of its own."""
    size = 16 << 10
    parts = [part(DATA[i * 1_000 : i * 1_000 + size]) for i in range(1_024)]
    results = await caller.put(parts)
    assert [r.outcome for r in results] == [STORED] * 1_024
    got = await caller.get_parts(parts)
    assert all(one.data == two.data for one, two in zip(got, parts, strict=True))


async def test_layers_can_be_read_alone(caller: Caller) -> None:
    sizes = (100, 200, 300, 400)
    one = part(DATA[:1_000], sizes=sizes)
    await caller.put([one])
    items = [
        cache_pb2.GetItem(block=one.ref, frame_begin=begin, frame_end=end)
        for begin in range(4)
        for end in range(begin + 1, 5)
    ]
    for item, got in zip(items, await caller.get(items), strict=True):
        first, last = sum(sizes[: item.frame_begin]), sum(sizes[: item.frame_end])
        assert bytes(got.data) == one.data[first:last]
        assert got.sizes == sizes[item.frame_begin : item.frame_end]


async def test_a_lookup_by_tokens_and_one_by_keys_find_the_same(caller: Caller) -> None:
    """Method: store two of three blocks of a prompt, then ask in both ways."""
    made = await caller.create("by-tokens", replace(TENSORS, model="tokens"))
    fingerprint = replace(TENSORS, model="tokens")
    tokens = list(range(1_000, 1_050))
    keys = chain(fingerprint, made.key_salt, tokens)
    layer = 2 * 2 * 16 * 8 * 2
    first = Part(keys.keys[0], DATA[: 2 * layer], keys.root, 0, sizes=(layer, layer))
    second = Part(keys.keys[1], DATA[2 * layer : 4 * layer], keys.keys[0], 1, sizes=(layer, layer))
    opened = caller.opening([first, second])
    opened.head.open.items[1].block.slot = keys.slot(1)
    results = await caller.send([opened, *chunks([first, second])])
    assert [r.outcome for r in results] == [STORED, STORED]

    by_keys = await caller.lookup(keys.keys, lease_ms=5_000)
    request = cache_pb2.LookupRequest(
        context=caller.context, namespace=caller.namespace, token_ids=tokens, describe=True
    )
    by_tokens = await caller.call(caller.cache.Lookup, request)
    assert by_keys.present_blocks == by_tokens.present_blocks == 2
    assert list(by_keys.blocks) == list(by_tokens.blocks)
    assert [b.miss for b in by_keys.blocks] == [0, 0, common_pb2.MISS_REASON_NEVER_STORED]
    assert [b.size_bytes for b in by_keys.blocks] == [2 * layer, 2 * layer, 0]
    assert 4_000 < by_keys.lease.duration_ms <= 5_000
    assert by_keys.lease.incarnation == by_keys.answerer.incarnation > 0
    assert not by_tokens.HasField("lease")

    request.describe = False
    plain = await caller.call(caller.cache.Lookup, request)
    assert (plain.present_blocks, len(plain.blocks)) == (2, 0)


async def test_stat_touch_pin_unpin_and_delete(caller: Caller) -> None:
    one, absent = part(DATA[:100]), part(DATA[:100])
    await caller.put([one])
    never = common_pb2.MISS_REASON_NEVER_STORED
    both = [one, absent]

    stats = (await caller.on_blocks("Stat", both)).stats
    assert [s.miss for s in stats] == [0, never]
    assert (stats[0].size_bytes, stats[0].parts, stats[0].pinned) == (100, 1, False)
    assert stats[0].group
    assert stats[0].digest

    touched = await caller.on_blocks("Touch", both, lease_ms=30_000)
    assert list(touched.misses) == [0, never]
    assert 29_000 < touched.lease.duration_ms <= 30_000
    assert list((await caller.on_blocks("Pin", both)).misses) == [0, never]
    [stat, _] = (await caller.on_blocks("Stat", both)).stats
    assert stat.pinned
    assert 29_000 < stat.lease_ms <= 30_000
    assert list((await caller.on_blocks("Unpin", both)).misses) == [0, never]
    [stat, _] = (await caller.on_blocks("Stat", both)).stats
    assert not stat.pinned

    assert list((await caller.on_blocks("Delete", both)).deleted_blocks) == [1, 0]
    [got] = await caller.get_parts([one])
    assert (got.miss, bytes(got.data)) == (common_pb2.MISS_REASON_INVALIDATED, b"")


async def test_conditions_of_a_store(caller: Caller) -> None:
    """Goal: another group stays out, replaces, or replaces only the group that is named."""
    first, other = part(DATA[:100]), DATA[100:200]
    [stored] = await caller.put([first])
    second = replace(first, data=other)
    [kept] = await caller.put([second])
    assert (kept.outcome, kept.group) == (ALREADY, stored.group)
    assert bytes((await caller.get_parts([first]))[0].data) == first.data

    [replaced] = await caller.put([second], condition=cache_pb2.PUT_CONDITION_OVERWRITE)
    assert replaced.outcome == STORED
    assert replaced.group != stored.group
    assert bytes((await caller.get_parts([first]))[0].data) == other

    opened = caller.opening([first], condition=cache_pb2.PUT_CONDITION_IF_GROUP)
    opened.head.open.items[0].if_group = stored.group
    [refused] = await caller.send([opened, *chunks([first])])
    assert refused.outcome != STORED
    opened.head.open.items[0].if_group = replaced.group
    [accepted] = await caller.send([opened, *chunks([first])])
    assert accepted.outcome == STORED
    assert bytes((await caller.get_parts([first]))[0].data) == first.data


async def test_a_get_can_insist_on_a_group(caller: Caller) -> None:
    one = part(DATA[:100])
    [stored] = await caller.put([one])
    items = [
        cache_pb2.GetItem(block=one.ref, group=stored.group),
        cache_pb2.GetItem(block=one.ref, group=stored.group ^ 1),
    ]
    right, wrong = await caller.get(items)
    assert bytes(right.data) == one.data
    assert wrong.miss
    assert not wrong.data


async def test_the_parts_of_a_block_become_visible_together(caller: Caller) -> None:
    await caller.create("ranks", replace(OPAQUE, model="ranks", tp_size=2))
    one = part(DATA[:100], parts=2)
    two = replace(one, data=DATA[100:250], part=1)
    [staged] = await caller.put([one])
    assert (staged.outcome, staged.group, list(staged.zones)) == (STAGED, 0, [])
    [early] = await caller.get_parts([one])
    assert early.miss
    [stored] = await caller.put([two])
    assert stored.outcome == STORED
    got = await caller.get_parts([one, two])
    assert [bytes(g.data) for g in got] == [one.data, two.data]
    assert {g.group for g in got} == {stored.group}


@pytest.mark.parametrize(
    "field", ["model", "kv_dtype", "tp_size", "block_tokens", "layout", "adapter"]
)
async def test_another_fingerprint_reads_nothing_and_writes_nothing(
    caller: Caller, field: str
) -> None:
    one = part(DATA[:100])
    await caller.put([one])
    values = {"kv_dtype": "int8", "tp_size": 2, "block_tokens": 32, "layout": "LKHTD"}
    other = replace(OPAQUE, **{field: values.get(field, "other")})  # type: ignore[arg-type]
    caller.namespace.fingerprint_digest = other.digest()
    fingerprint = common_pb2.MISS_REASON_FINGERPRINT
    answer = await caller.lookup([one.key])
    assert (answer.present_blocks, answer.blocks[0].miss) == (0, fingerprint)
    [got] = await caller.get_parts([one])
    assert (got.miss, bytes(got.data)) == (fingerprint, b"")
    assert [s.miss for s in (await caller.on_blocks("Stat", [one])).stats] == [fingerprint]
    assert list((await caller.on_blocks("Touch", [one])).misses) == [fingerprint]


async def test_a_mixed_batch_has_a_status_for_each_item(caller: Caller) -> None:
    """Method: of four items one is whole, one has a wrong byte, one is short, one came before."""
    whole, wrong, short, before = (part(DATA[i * 100 : (i + 1) * 100]) for i in range(4))
    await caller.put([before])
    messages = [
        caller.opening([whole, wrong, short, before]),
        put_frame((0, 0, 100), (1, 0, 100), payload=whole.data + b"x" + wrong.data[1:]),
        put_frame((3, 0, 100), (2, 0, 99), payload=before.data + short.data[:99]),
    ]
    results = await caller.send(messages)
    assert [r.outcome for r in results] == [
        STORED,
        cache_pb2.PUT_OUTCOME_REFUSED,
        cache_pb2.PUT_OUTCOME_REFUSED,
        ALREADY,
    ]
    assert results[1].error.code == common_pb2.ERROR_CODE_CHECKSUM
    assert results[2].error.code == common_pb2.ERROR_CODE_INVALID_ARGUMENT
    assert results[2].error.field == "open.items[2]"
    got = await caller.get_parts([whole, wrong, short])
    assert [bool(g.miss) for g in got] == [False, True, True]


async def test_hits_and_misses_add_up(caller: Caller, process: Process) -> None:
    """Goal: hits + misses = blocks looked up, to the unit, for the node and for the namespace."""
    before = await caller.status()
    parts = [part(DATA[i : i + 50]) for i in range(3)]
    await caller.put(parts)
    for one in parts:
        await caller.lookup([one.key])
        await caller.lookup([part(b"").key])
    after = await caller.status()
    assert after.lookup_hits - before.lookup_hits == 3
    assert after.lookup_misses - before.lookup_misses == 3
    [mine] = [n for n in after.namespaces if n.name == caller.namespace.name]
    assert (mine.blocks, mine.lookup_hits, mine.lookup_misses) == (3, 3, 3)
    assert after.arena_bytes == 64 * MIB
    assert after.resident_bytes > 64 * MIB
    assert after.answerer.node == process.file.map.members[0].name
