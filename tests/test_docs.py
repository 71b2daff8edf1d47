"""Documents are checked like code: links resolve, and tables equal what they describe."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.core import errors, fingerprint, limits
from kvorum.v1 import status

ROOT = Path(__file__).parents[1]
FOLDERS = [
    path
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name not in {"build", "dist"}
]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for path in [*ROOT.glob("*.md"), *(p for folder in FOLDERS for p in folder.rglob("*.md"))]
)
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)


def prose(text: str) -> str:
    """The text without code, in which brackets mean something else."""
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    seen: Counter[str] = Counter()
    found = set()
    body = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", body, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def links(path: Path) -> Iterator[str]:
    for match in LINK.finditer(prose((ROOT / path).read_text(encoding="utf-8"))):
        yield match[1] or match[2]


def broken(path: Path, link: str) -> str | None:
    """Why a relative link leads nowhere; None if it leads somewhere."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        return None
    name, _, anchor = link.partition("#")
    target = (ROOT / path).parent / name if name else ROOT / path
    if not target.resolve().is_relative_to(ROOT):
        return "outside the repository"
    if not target.exists():
        return "no such file"
    if anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
        return "no such heading"
    return None


@pytest.mark.parametrize("path", DOCUMENTS, ids=str)
def test_every_relative_link_and_anchor_resolves(path: Path) -> None:
    assert {link: why for link in links(path) if (why := broken(path, link))} == {}


def test_the_link_checker_sees_what_is_broken() -> None:
    here = Path("docs/errors.md")
    text = (
        "# A `b`, c!\n```\n[x](y)\n# no heading\n```\n"
        "`[x](y)` [x](a.md 'title')\n[r]: b.md\n# d e\n# d\n## d"
    )
    assert anchors(text) == {"a-b-c", "d-e", "d", "d-1"}
    assert [m[1] or m[2] for m in LINK.finditer(prose(text))] == ["a.md", "b.md"]
    assert broken(here, "keys.md#fingerprint") is None
    assert broken(here, "https://example.com/no") is None
    assert broken(here, "none.md") == "no such file"
    assert broken(here, "#none") == "no such heading"
    assert broken(here, "keys.md#none") == "no such heading"
    assert broken(here, "../../elsewhere") == "outside the repository"


def rows(path: str, columns: int) -> list[list[str]]:
    """The body rows, of that many columns, of every table of a document."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        body = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in table.splitlines()
        ]
        if len(body[0]) == columns:
            found += body[2:]
    return found


def test_limits_are_those_of_the_code() -> None:
    written = {name: value for name, value, _, _ in rows("docs/limits.md", 4)}
    real = {
        f"`{name}`": f"{value:,}" if isinstance(value, int) else f"{value:g}"
        for name, value in vars(limits).items()
        if name.isupper()
    }
    assert written == real


def test_every_error_class_is_described_as_it_is() -> None:
    written = [tuple(row[:5]) for row in rows("docs/errors.md", 6)]
    real = []
    for code, cls in errors.ERROR_BY_CODE.items():
        depth = len(cls.mro()) - len(errors.KvorumError.mro())
        real.append(
            (
                "↳ " * (depth - 1) + f"`{cls.__name__}`",
                f"`{code.name}`",
                f"{code.value}",
                f"`{status._STATUS[code].name}`",
                "yes" if cls.retryable else "no",
            )
        )
    assert written == real
    assert len(real) == len(errors.ErrorCode)


def test_statuses_without_a_detail_are_described_as_they_are_read() -> None:
    *written, rest = rows("docs/errors.md", 2)
    assert [tuple(row) for row in written] == [
        (f"`{code.name}`", f"`{cls.__name__}`") for code, cls in status._BARE.items()
    ]
    assert rest == ["any other", "`InternalError`"]


def test_sizes_of_an_error_on_the_wire_are_those_of_the_code() -> None:
    text = " ".join((ROOT / "docs/errors.md").read_text(encoding="utf-8").split())
    assert f"{status._MESSAGE_BYTES_MAX:,} bytes (`message`)" in text
    assert f"{status._FIELD_BYTES_MAX:,} bytes (`field`, `limit`)" in text


def test_fingerprint_fields_are_described_in_their_order() -> None:
    kinds = {"str": "text", "int": "number"}
    written = [tuple(row[:3]) for row in rows("docs/keys.md", 4)]
    real = [
        (f"{number}", f"`{name}`", kinds[f"{field.type}"])
        for number, (name, field) in enumerate(
            fingerprint.Fingerprint.__dataclass_fields__.items(), 1
        )
    ]
    assert written == real
    kv_dtype = next(row[3] for row in rows("docs/keys.md", 4) if row[1] == "`kv_dtype`")
    assert re.findall(r"`(\w+)`", kv_dtype) == list(fingerprint.DTYPE_BYTES)


def test_the_example_of_the_keys_is_the_first_vector() -> None:
    vectors: list[dict[str, Any]] = json.loads((ROOT / "tests/vectors/keys.json").read_text())
    first = vectors[0]
    text = (ROOT / "docs/keys.md").read_text(encoding="utf-8")
    assert f'the vector "{first["name"]}"' in text
    shown = {row[0]: row[1].split(",")[0].strip("`") for row in rows("docs/keys.md", 2)}
    assert shown["fingerprint digest"] == first["digest"]
    assert shown["salt"] == first["salt"]
    assert shown["H0"] == first["root"]
    assert shown["H1, also the prompt id"] == first["keys"][0] == first["prompt_id"]
    assert f"| slot | {first['slots'][0]:,}," in text


def test_every_key_of_a_vector_is_described() -> None:
    vectors: list[dict[str, Any]] = json.loads((ROOT / "tests/vectors/keys.json").read_text())
    section = (ROOT / "docs/keys.md").read_text(encoding="utf-8").partition("## Test vectors")[2]
    first_cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    described = set(re.findall(r"`(\w+)`", "".join(first_cells)))
    assert {frozenset(vector) for vector in vectors} == {frozenset(described)}
