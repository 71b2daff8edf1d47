"""Arena: bounds, sharing of bytes between views, and what happens when the machine is too small."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.arena import Arena

PAGE = 4096


def test_views_share_the_bytes_of_the_arena() -> None:
    arena = Arena(2 * PAGE)
    arena.view(PAGE - 2, 4)[:] = b"abcd"
    assert bytes(arena.view(PAGE, 2)) == b"cd"
    assert bytes(arena.view(0, 1)) == b"\0"


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, -1), (0, 2 * PAGE + 1), (2 * PAGE, 1)])
def test_a_view_beyond_the_arena_is_refused(offset: int, size: int) -> None:
    arena = Arena(2 * PAGE)
    with pytest.raises(ValueError, match="not inside"):
        arena.view(offset, size)


def test_the_last_byte_is_inside() -> None:
    arena = Arena(2 * PAGE)
    assert arena.view(2 * PAGE - 1, 1).nbytes == 1
    assert arena.view(2 * PAGE, 0).nbytes == 0


@pytest.mark.parametrize("capacity", [0, -1, 1 << 60])
def test_more_memory_than_the_machine_has_is_refused(capacity: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Arena(capacity)
    assert caught.value.field == "memory"
    assert caught.value.limit


def test_memory_is_resident_from_the_start_and_comes_back_after_the_last_view() -> None:
    """Method: look the mapping up in the process's own map, by its name."""
    before = arena_mappings()
    arena = Arena(64 * PAGE)
    [mine] = arena_mappings() - before
    assert resident_kib(mine) == 64 * PAGE // 1024
    view = arena.view(0, 1)
    arena.close()
    with pytest.raises(ValueError, match="closed"):
        arena.view(0, 1)
    assert mine in arena_mappings()
    del view
    gc.collect()
    assert mine not in arena_mappings()


def arena_mappings() -> set[str]:
    lines = Path(f"/proc/{os.getpid()}/maps").read_text().splitlines()
    return {line.split()[0] for line in lines if "kvorum-arena" in line}


def resident_kib(span: str) -> int:
    text = Path(f"/proc/{os.getpid()}/smaps").read_text()
    section = text[text.index(span) :].splitlines()
    [rss] = [line for line in section[:10] if line.startswith("Rss:")]
    return int(rss.split()[1])
