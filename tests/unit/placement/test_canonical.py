"""Canonical bytes cannot be read in two ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvorum.placement import canonical


def test_the_bytes_are_pinned() -> None:
    assert canonical.text("zoé") == b"\x04\0\0\0zo\xc3\xa9"
    assert canonical.numbers(1, 2**64 - 1) == b"\1\0\0\0\0\0\0\0" + b"\xff" * 8


@given(st.lists(st.text("ab", max_size=4), max_size=4), st.lists(st.text("ab", max_size=4)))
def test_texts_one_after_the_other_do_not_run_together(one: list[str], two: list[str]) -> None:
    joined = [b"".join(map(canonical.text, texts)) for texts in (one, two)]
    assert (joined[0] == joined[1]) == (one == two)
