"""One rule for every name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.core.names import check_name


@given(st.from_regex(r"[a-z0-9._-]{1,128}", fullmatch=True))
def test_a_name_is_returned(name: str) -> None:
    assert check_name(name, "x") == name


@given(st.text(max_size=140))
def test_everything_else_is_refused(text: str) -> None:
    if re.fullmatch(r"[a-z0-9._\-]{1,128}", text):
        return
    with pytest.raises(InvalidArgumentError) as caught:
        check_name(text, "namespace.name")
    assert caught.value.field == "namespace.name"
    assert caught.value.limit == "1 to 128 of a-z 0-9 . _ -"


@pytest.mark.parametrize("value", [None, 1, b"a", "", "a\n", "ä", "A", "a b", "a/b", "\u0661"])
def test_what_looks_like_a_name_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgumentError):
        check_name(value, "x")


def test_a_long_name_is_too_large() -> None:
    with pytest.raises(TooLargeError) as caught:
        check_name("a" * 129, "x")
    assert "129 characters" in str(caught.value)
