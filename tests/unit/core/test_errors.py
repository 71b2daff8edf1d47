"""The error tree: drawn once, numbered once, and the same after any journey."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from kvorum.core import errors
from kvorum.core.errors import ERROR_BY_CODE, ErrorCode, InternalError, KvorumError, shown
from kvorum.node.engine.events import Miss
from kvorum.v1 import common_pb2

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, KvorumError)
]


def drawn() -> list[tuple[int, str, bool]]:
    """(depth, class, retryable) of every line of the tree in the module's docstring."""
    tree = re.findall(
        r"^([│ ]*(?:[├└]── )?)(\w+Error)\b[^\n(]*?( *\(retry\))?",
        errors.__doc__ or "",
        re.MULTILINE,
    )
    return [(len(indent) // 4, name, bool(retry)) for indent, name, retry in tree]


def test_the_drawn_tree_is_the_real_one() -> None:
    def walk(cls: type[KvorumError], depth: int) -> list[tuple[int, str, bool]]:
        children = [child for child in cls.__subclasses__() if child.__module__ == errors.__name__]
        below = [row for child in children for row in walk(child, depth + 1)]
        return [(depth, cls.__name__, cls.retryable), *below]

    assert drawn() == walk(KvorumError, 0)


def test_every_code_has_one_class_and_every_class_one_code() -> None:
    assert set(ERROR_BY_CODE) == set(ErrorCode)
    assert set(ERROR_BY_CODE.values()) | {KvorumError} == set(CLASSES)
    assert all(cls.code is code for code, cls in ERROR_BY_CODE.items())
    assert ERROR_BY_CODE[ErrorCode.INTERNAL] is InternalError


def test_codes_equal_those_on_the_wire() -> None:
    wire = dict(common_pb2.ErrorCode.items())
    assert wire.pop("ERROR_CODE_UNSPECIFIED") == 0
    assert wire == {f"ERROR_CODE_{code.name}": code.value for code in ErrorCode}


def test_miss_reasons_equal_those_on_the_wire() -> None:
    wire = dict(common_pb2.MissReason.items())
    assert wire.pop("MISS_REASON_UNSPECIFIED") == 0
    assert wire == {f"MISS_REASON_{miss.name}": miss.value for miss in Miss}


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_is_the_same_after_pickling_and_copying(cls: type[KvorumError]) -> None:
    error = cls("it broke", field="a.b", limit="3 bytes", retry_after_s=0.5)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  # our own
        assert type(again) is cls
        assert vars(again) == vars(error)
        assert str(again) == str(error) == "it broke; field: a.b; limit: 3 bytes"


def test_an_error_without_field_and_limit_is_its_message() -> None:
    assert str(KvorumError("it broke")) == "it broke"
    assert vars(KvorumError("it broke")) == {
        "message": "it broke",
        "field": "",
        "limit": "",
        "retry_after_s": None,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, "7"),
        (True, "True"),
        (1.5, "1.5"),
        (None, "None"),
        ("a'b", '"a\'b"'),
        ("\ud800", "'\\ud800'"),
        ("x" * 101, "'" + "x" * 100 + "'..."),
        ([1] * 10**6, "a list"),
        (b"secret", "a bytes"),
        pytest.param(1 << 20_000, "an integer of 20001 bits", id="vast"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_value_is_shown_short_whatever_it_is(value: object, expected: str) -> None:
    assert shown(value) == expected
