"""Whatever a node answers to a get, no wrong byte is handed out.

Goal: every lie costs at most the block that it is about: another zone delivers it, and if every
zone lies the prefix ends before it, the reason says so and the caller's buffer has zeros there.
Method: three zones hold the same eight blocks; the nearest one, or all, change their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kvorum.client import AsyncClient, Hit, MissReason
from kvorum.core.checksum import frame_checksums
from kvorum.v1 import cache_pb2, common_pb2
from kvorum.v1.frames import Frame
from tests.integration.client.conftest import Case, Connect
from tests.integration.client.lying_cluster import LyingCluster
from tests.integration.client.lying_node import Lie, Message

BLOCKS = 8
BAD = 3

Prepared = tuple[AsyncClient, Case, Hit]


def of_item(messages: list[Message], item: int) -> list[int]:
    """Return the positions of an item's messages."""
    return [at for at, m in enumerate(messages) if m.head.chunks[0].item == item]


def flip(messages: list[Message], bad: int) -> list[Message]:
    """Flip one bit of the bad block."""
    at = of_item(messages, bad)[-1]
    data = bytearray(messages[at].payload)
    data[len(data) // 2] ^= 1
    messages[at] = Frame(messages[at].head, memoryview(bytes(data)))
    return messages


def drop_a_chunk(messages: list[Message], bad: int) -> list[Message]:
    """Leave out the middle of the bad block."""
    del messages[of_item(messages, bad)[1]]
    return messages


def swap_chunks(messages: list[Message], bad: int) -> list[Message]:
    """Send two chunks of the bad block the wrong way round."""
    first, second = of_item(messages, bad)[1:3]
    messages[first], messages[second] = messages[second], messages[first]
    return messages


def other_group(messages: list[Message], bad: int) -> list[Message]:
    """Send another group of the bad block: other bytes with good checksums."""
    at, *rest = of_item(messages, bad)
    data = bytes(3_003)
    chunk = cache_pb2.GetChunk(item=bad, length=len(data))
    chunk.header.frame_sizes.append(len(data))
    chunk.header.frame_crc32c.extend(frame_checksums(memoryview(data), [len(data)]))
    chunk.header.group = 99
    messages[at] = Frame(cache_pb2.GetResponse(chunks=[chunk]), memoryview(data))
    for position in reversed(rest):
        del messages[position]
    return messages


def other_item(messages: list[Message], bad: int) -> list[Message]:
    """Swap the names of the bad block and the one behind it, headers and bytes."""
    if not of_item(messages, bad + 1):
        return flip(messages, bad)
    for message in messages:
        chunk = message.head.chunks[0]
        if chunk.item in (bad, bad + 1):
            chunk.item = 2 * bad + 1 - chunk.item
    return messages


def two_groups(messages: list[Message], bad: int) -> list[Message]:
    """Send the bad block's header, then bytes of another group from the middle on."""
    at = of_item(messages, bad)[2]
    messages[at] = Frame(messages[at].head, memoryview(bytes(messages[at].payload.nbytes)))
    return messages


def wrong_sum(messages: list[Message], bad: int) -> list[Message]:
    """Announce another checksum."""
    header = messages[of_item(messages, bad)[0]].head.chunks[0].header
    header.frame_crc32c[0] ^= 1
    return messages


def no_header(messages: list[Message], bad: int) -> list[Message]:
    """Send bytes without a header."""
    messages[of_item(messages, bad)[0]].head.chunks[0].ClearField("header")
    return messages


def longer(messages: list[Message], bad: int) -> list[Message]:
    """Send more bytes than announced."""
    at = of_item(messages, bad)[-1]
    data = bytes(messages[at].payload) + b"more"
    head = messages[at].head
    head.chunks[0].length += 4
    messages[at] = Frame(head, memoryview(data))
    return messages


def abort_late(messages: list[Message], bad: int) -> list[Message]:
    """Say in the middle of the bad block that it failed."""
    at = of_item(messages, bad)[1]
    chunk = cache_pb2.GetChunk(item=bad, aborted=common_pb2.MISS_REASON_CHECKSUM)
    messages.insert(at, Frame(cache_pb2.GetResponse(chunks=[chunk])))
    return messages


ABOUT_ONE_BLOCK: list[Lie] = [
    flip,
    drop_a_chunk,
    swap_chunks,
    other_group,
    other_item,
    two_groups,
    wrong_sum,
    no_header,
    longer,
    abort_late,
]


def twice(messages: list[Message], bad: int) -> list[Message]:
    """Answer the bad block a second time, with other bytes."""
    end = of_item(messages, bad)[-1] + 1
    again = [messages[at] for at in of_item(messages, bad)]
    return [*messages[:end], *flip(again, bad), *messages[end:]]


def truncated(messages: list[Message], bad: int) -> list[Message]:
    """End the answer in the middle of the bad block."""
    return messages[: of_item(messages, bad)[1]]


def garbage(messages: list[Message], bad: int) -> Sequence[Message | bytes]:
    """Send bytes that are no message."""
    return [*messages[: of_item(messages, bad)[1]], b"\xff\xff\xff\xff"]


def unknown_item(messages: list[Message], bad: int) -> list[Message]:
    """Answer an item that was not asked for."""
    messages[of_item(messages, bad)[0]].head.chunks[0].item = 10_000
    return messages


def uncovered(messages: list[Message], bad: int) -> list[Message]:
    """Send payload that no chunk covers."""
    at = of_item(messages, bad)[0]
    messages[at] = Frame(messages[at].head, memoryview(bytes(messages[at].payload) + b"x"))
    return messages


def silence(messages: list[Message], bad: int) -> list[Message]:
    """Answer nothing from the bad block on, and end well."""
    return messages[: of_item(messages, bad)[0]]


ABOUT_THE_ANSWER: list[Lie] = [twice, truncated, garbage, unknown_item, uncovered, silence]


def name_of(lie: Callable[..., object]) -> str:
    return lie.__name__


@pytest.fixture
async def prepared(cluster: LyingCluster, connect: Connect) -> Prepared:
    """A client, a prompt that all zones hold, and its hit."""
    client, case = await connect(cluster), Case(BLOCKS)
    await case.store(client)
    cluster.copy(cluster.node("a"), cluster.node("b"), cluster.node("c"))
    hit = await case.find(client)
    cluster.every(lambda faults: setattr(faults, "victim", hit.blocks[BAD].key))
    return client, case, hit


@pytest.mark.parametrize("lie", [*ABOUT_ONE_BLOCK, *ABOUT_THE_ANSWER], ids=name_of)
async def test_another_zone_delivers_what_one_spoils(
    cluster: LyingCluster, prepared: Prepared, lie: Lie
) -> None:
    client, case, hit = prepared
    cluster.node("a").faults.lie = lie
    fetched = await client.fetch(hit)
    assert case.is_prefix(fetched, BLOCKS)
    assert fetched.reason is None
    others = cluster.node("b").calls["Get"] + cluster.node("c").calls["Get"]
    assert 1 <= others <= (2 if lie is other_item else 1)


@pytest.mark.parametrize("lie", ABOUT_ONE_BLOCK, ids=name_of)
async def test_a_lie_about_one_block_costs_no_other(
    cluster: LyingCluster, prepared: Prepared, lie: Lie
) -> None:
    """The other zone is asked for the bad block alone."""
    client, case, hit = prepared
    cluster.node("a").faults.lie = lie
    fetched = await client.fetch(hit)
    assert case.is_prefix(fetched, BLOCKS)
    others = sum(fetched.bytes_by_zone.get(zone, 0) for zone in "bc")
    spoilt = [BAD, BAD + 1] if lie is other_item else [BAD]
    assert others == sum(len(case.data[at]) for at in spoilt)


@pytest.mark.parametrize("lie", [*ABOUT_ONE_BLOCK, *ABOUT_THE_ANSWER[1:]], ids=name_of)
async def test_if_every_zone_lies_the_prefix_ends_before_the_lie(
    cluster: LyingCluster, prepared: Prepared, lie: Lie
) -> None:
    client, case, hit = prepared
    cluster.every(lambda faults: setattr(faults, "lie", lie))
    into = bytearray(b"\xee" * 30_000)
    fetched = await client.fetch(hit, into=into)
    assert case.is_prefix(fetched, BAD)
    assert fetched.reason is MissReason.CHECKSUM
    good = b"".join(case.data[:BAD])
    size = sum(map(len, case.data))
    assert bytes(into[:size]) == good + bytes(size - len(good))
    assert bytes(into[size:]) == b"\xee" * (30_000 - size)


async def test_corrupt_blocks_are_counted(cluster: LyingCluster, prepared: Prepared) -> None:
    client, _, hit = prepared
    cluster.node("a").faults.lie = flip
    await client.fetch(hit)
    assert client.stats.corrupt_blocks == 1
    assert client.stats.fetched_blocks == BLOCKS


async def test_a_lookup_that_lies_about_sizes_leads_to_no_wrong_byte(
    cluster: LyingCluster, prepared: Prepared
) -> None:
    """The hit says other sizes and groups than the node then delivers."""
    client, case, hit = prepared
    good = cluster.node("a").blocks
    for key in list(good):
        for node in cluster.nodes.values():
            block = node.blocks[key]
            node.blocks[key] = type(block)(block.data + b"x", (len(block.data) + 1,), block.group)
    fetched = await client.fetch(hit, into=bytearray(sum(map(len, case.data))))
    assert fetched.tokens == 0
    assert fetched.reason is MissReason.CHECKSUM
