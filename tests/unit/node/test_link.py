"""Link: what acknowledgements mean when entries were passed over between and behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.channels import Channels
from kvorum.node.clock import Clock
from kvorum.node.config import NodeConfig
from kvorum.node.engine.events import Replicate
from kvorum.node.engine.pipe import Pipe
from kvorum.node.lifecycle import Identity, Lifecycle
from kvorum.node.link import Link
from kvorum.node.membership import Membership
from kvorum.placement import ClusterFile
from tests.unit.node.stand import SPACE, Time, stand

FILE = ClusterFile.local(2, 1, [7000, 7001], bytes(32), "p" * 16, "a" * 16)


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    """A link that was never connected, with six entries that were taken from its pipe."""
    clock = Clock(Time())
    own, peer = FILE.map.members
    channels = Channels(NodeConfig(name=own.name), FILE.peer_token)
    membership = Membership(FILE.map, own.name, clock, 3_000)
    lifecycle = Lifecycle(Identity(own, 1, FILE.digest()), clock)
    made = Link(peer, Pipe(100, 1 << 20), channels, stand().driver, lifecycle, membership)
    for number in range(6):
        made.offer(Replicate(SPACE, bytes([number]) * 64, 0, 2, 1, 10, overwrite=False))
    assert len(made.pipe.take()) == 6
    yield made
    await channels.close()


def sent(link: Link, *passed_over: int) -> None:
    """Note six entries as sent, but for those that were passed over."""
    link._under_way.extend((number, number not in passed_over) for number in range(1, 7))


def test_all_up_to_a_position_is_acknowledged(link: Link) -> None:
    sent(link)
    link._acknowledge(4)
    assert (link.pipe.acknowledged, len(link.pipe)) == (4, 2)
    link._acknowledge(2)
    assert link.pipe.acknowledged == 4


def test_what_was_passed_over_right_behind_counts_as_acknowledged(link: Link) -> None:
    sent(link, 3, 4, 6)
    link._acknowledge(1)
    assert link.pipe.acknowledged == 1
    link._acknowledge(2)
    assert link.pipe.acknowledged == 4
    link._acknowledge(5)
    assert (link.pipe.acknowledged, len(link.pipe)) == (6, 0)


def test_what_was_passed_over_first_needs_no_answer(link: Link) -> None:
    sent(link, 1, 2)
    link._acknowledge(link.pipe.acknowledged)
    assert link.pipe.acknowledged == 2


def test_refusals_are_counted(link: Link) -> None:
    sent(link)
    link._acknowledge(3, {1, 3})
    assert link.pipe.refused == 2


def test_a_peer_that_acknowledges_what_was_never_sent_breaks_the_link(link: Link) -> None:
    sent(link)
    with pytest.raises(InvalidArgumentError):
        link._acknowledge(7)
