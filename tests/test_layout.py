"""The repository's shape: what its tools take for granted is asserted here."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE_ROOTS = sorted(path.parent.name for path in ROOT.glob("*/kvorum") if path.is_dir())
PORTIONS = {
    portion.name: portion
    for root in SOURCE_ROOTS
    for portion in sorted((ROOT / root / "kvorum").iterdir())
    if portion.is_dir() and any(portion.rglob("*.py"))
}
LINES_MAX = 400


def written_by_hand(*endings: str) -> Iterator[Path]:
    """Files of the repository, generated code left out."""
    for folder in ROOT.iterdir():
        if folder.is_dir() and not folder.name.startswith(".") and folder.name != "build":
            for path in folder.rglob("*"):
                if path.suffix in endings and "_pb2" not in path.name:
                    yield path


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_source_roots_are_found() -> None:
    assert {"core", "placement", "proto", "client", "node", "cli"} <= set(SOURCE_ROOTS)
    assert {"core", "placement", "v1"} <= set(PORTIONS)


def test_kvorum_is_a_namespace_that_no_source_root_claims_for_itself() -> None:
    assert [relative(path) for path in ROOT.glob("*/kvorum/__init__.py")] == []


def test_every_portion_is_a_typed_package() -> None:
    missing = [
        relative(portion / name)
        for portion in PORTIONS.values()
        for name in ("__init__.py", "py.typed")
        if not (portion / name).exists()
    ]
    assert missing == []


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for portion in PORTIONS.values() for path in portion.rglob("*.py")}
    assert [relative(path) for path in folders if not (path / "__init__.py").exists()] == []


def test_every_tool_knows_every_source_root() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    build = tool["hatch"]["build"]
    portion_root = {name: relative(path).split("/")[0] for name, path in PORTIONS.items()}
    told = {
        "editable install": build["dev-mode-dirs"],
        "wheel": [path.removesuffix("/kvorum") for path in build["targets"]["wheel"]["packages"]],
        "mypy": [path for path in tool["mypy"]["mypy_path"].split(":") if path != "typings"],
        "pyright": tool["pyright"]["extraPaths"],
        "import-linter": [
            portion_root.get(name.removeprefix("kvorum."), name)
            for name in tool["importlinter"]["root_packages"]
        ],
    }
    assert {name: sorted(roots) for name, roots in told.items()} == dict.fromkeys(
        told, SOURCE_ROOTS
    )


def test_every_portion_has_its_layer() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    (layers,) = (c for c in tool["importlinter"]["contracts"] if c["type"] == "layers")
    named = [name.strip() for layer in layers["layers"] for name in layer.split("|")]
    assert sorted(named) == sorted(f"kvorum.{name}" for name in PORTIONS)


def test_no_file_is_too_long_to_read() -> None:
    long = {
        relative(path): lines
        for path in written_by_hand(".py", ".pyi", ".proto")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert long == {}


def test_nothing_is_left_to_do() -> None:
    marks = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X)\b")  # brackets, so as not to find itself
    assert [
        f"{relative(path)}: {found[0]}"
        for path in written_by_hand(".py", ".pyi", ".proto", ".md", ".toml")
        if (found := marks.search(path.read_text(encoding="utf-8")))
    ] == []


def names_a_module(test: Path, folder: Path) -> bool:
    """Whether test_<module>.py, or test_<module>_<aspect>.py, is about a module in `folder`."""
    words = test.stem.removeprefix("test_").split("_")
    names = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    return any((folder / f"{n}.py").exists() or (folder / n).is_dir() for n in names)


def test_unit_tests_mirror_the_tree() -> None:
    unit = ROOT / "tests" / "unit"
    astray = []
    for test in sorted(unit.rglob("test_*.py")):
        portion, *inner = test.parent.relative_to(unit).parts
        folder = PORTIONS[portion].joinpath(*inner) if portion in PORTIONS else None
        if folder is None or not names_a_module(test, folder):
            astray.append(relative(test))
    assert astray == []


@pytest.mark.parametrize("name", PORTIONS)
def test_what_a_portion_exports_is_there_and_in_order(name: str) -> None:
    module = importlib.import_module(f"kvorum.{name}")
    exported: list[str] = getattr(module, "__all__", [])
    assert [public for public in exported if not hasattr(module, public)] == []
    assert len(set(exported)) == len(exported)
