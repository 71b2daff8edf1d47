"""Tables are read strictly, and what is written is read back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.placement.tables import Table, inline, pairs, quoted

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_any_text_survives_quoting(text: str) -> None:
    assert Table.parse(f"key = {quoted(text)}").text("key") == text


@given(TEXT, st.integers(-(2**63), 2**63 - 1))
def test_pairs_and_inline_tables_are_read_back(text: str, number: int) -> None:
    table = Table.parse(pairs({"a": text, "b": number}) + f"c = {inline({'d': text, 'e': number})}")
    assert (table.text("a"), table.integer("b")) == (text, number)
    inner = table.table("c")
    assert (inner.text("d"), inner.integer("e")) == (text, number)
    inner.end()
    table.end()


@pytest.mark.parametrize(
    "text",
    ["=", "a = 1\na = 2", "a = \x00", "a = " + "[" * 5000, "a = " + "1" * 5000, "[a]\n[a]"],
    ids=["syntax", "twice", "nul", "deep", "vast", "table twice"],
)
def test_what_is_not_toml_is_a_typed_error(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Table.parse(text)
    assert (caught.value.field, caught.value.limit) == ("cluster file", "TOML 1.0")


def test_a_text_too_long_is_not_even_parsed() -> None:
    with pytest.raises(TooLargeError) as caught:
        Table.parse("#" * (limits.CLUSTER_FILE_CHARS_MAX + 1))
    assert caught.value.limit == f"{limits.CLUSTER_FILE_CHARS_MAX} characters"


TAKE: dict[str, Callable[[Table], object]] = {
    "text": lambda t: t.text("a"),
    "integer": lambda t: t.integer("a"),
    "table": lambda t: t.table("a"),
    "tables": lambda t: t.tables("a"),
    "end": lambda t: t.end(),
    "text in table": lambda t: t.table("a").text("b"),
    "text in tables": lambda t: [inner.text("b") for inner in t.tables("a") or ()],
    "end of table in table": lambda t: t.table("a").table("b").end(),
}


@pytest.mark.parametrize(
    ("text", "take", "field"),
    [
        ("", "text", "a"),
        ("", "integer", "a"),
        ("", "table", "a"),
        ("a = 1", "text", "a"),
        ("a = '1'", "integer", "a"),
        ("a = true", "integer", "a"),
        ("a = 1.0", "integer", "a"),
        ("a = []", "table", "a"),
        ("a = {}", "tables", "a"),
        ("a = [1]", "tables", "a"),
        ("a = 1", "end", "a"),
        ("[a]\nc = 1", "text in table", "a.b"),
        ("[[a]]\nb = '1'\n[[a]]\nb = 1", "text in tables", "a[1].b"),
        ("[a.b]\nc = 1", "end of table in table", "a.b.c"),
    ],
)
def test_an_error_names_the_place(text: str, take: str, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        TAKE[take](Table.parse(text))
    assert caught.value.field == field
    assert caught.value.limit


def test_absent_tables_and_defaults() -> None:
    table = Table.parse("a = 1")
    assert table.tables("b") is None
    assert table.integer("c", 7) == 7
    assert table.integer("c", 0) == 0
    assert table.rest() == {"a": 1}
    table.end()


def test_an_error_of_a_value_is_located_in_the_file() -> None:
    table = Table.parse("[a.b]").table("a").table("b")
    with pytest.raises(TooLargeError) as caught, table.located():
        raise TooLargeError("too long", field="member.name", limit="128")
    assert (caught.value.field, caught.value.limit) == ("a.b.name", "128")
