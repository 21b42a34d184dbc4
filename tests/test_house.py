"""The house: no two files need each other, no folder is full, and no file is long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "eaglechat"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_MODULES, MOST_LINES = 12, 400

LONG: dict[str, int] = {}
"""Files that are still too long, and the lines they may have until they shrink."""
FULL: dict[str, int] = {}
"""Folders that are still too full, likewise."""


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name; a folder's `__init__` has the folder's."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules a file names: at its top, inside functions, and for type checking alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{name} imports by a relative name"
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                if inside in known:
                    yield inside
                elif node.module in known:
                    yield node.module


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1 or node in graph[node]:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def test_no_files_need_each_other() -> None:
    known = modules()
    graph = {name: set(imported(name, path, known)) for name, path in known.items()}
    assert len(graph) > 100
    assert circles(graph) == []


def test_circles_are_found_late_and_type_checking_imports_included(tmp_path: Path) -> None:
    texts = {
        "p": "",
        "p.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B",
        "p.b": "def f():\n    import p.c",
        "p.c": "from p import a, d",
        "p.d": "from p import b as other",
        "p.e": "import p.a, p.d",
    }
    known = {name: tmp_path / f"{name}.py" for name in texts}
    for name, text in texts.items():
        known[name].write_text(text)
    graph = {name: set(imported(name, path, known)) for name, path in known.items()}
    assert circles(graph) == [["p.a", "p.b", "p.c", "p.d"]]


def folders() -> list[Path]:
    roots = (PACKAGE, ROOT / "tests")
    return sorted({path.parent for root in roots for path in root.rglob("*.py")})


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_folder_holds_a_dozen_modules(folder: Path) -> None:
    names = sorted(path.name for path in folder.glob("*.py") if path.name != "__init__.py")
    allowed = FULL.get(str(folder.relative_to(ROOT)), MOST_MODULES)
    assert len(names) <= allowed, names


@pytest.mark.parametrize("path", modules().values(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONG.get(str(path.relative_to(ROOT)), MOST_LINES)


def test_what_is_allowed_more_needs_it_still() -> None:
    for name, allowed in LONG.items():
        assert MOST_LINES < len((ROOT / name).read_text("utf-8").splitlines()) <= allowed, name
    for name in FULL:
        files = [path for path in (ROOT / name).glob("*.py") if path.name != "__init__.py"]
        assert len(files) > MOST_MODULES, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_paths_that_are_there(page: Path) -> None:
    """In code marks: from the top, or of a room as the page about the house writes it."""
    text = page.read_text(encoding="utf-8")
    rooms = [path.name for path in PACKAGE.iterdir() if path.is_dir()]
    named = re.findall(rf"`((?:eaglechat|tests|docs|{'|'.join(rooms)})/[\w./*-]*)`", text)
    assert [name for name in named if not is_there(name)] == []


def is_there(name: str) -> bool:
    return any(any(top.glob(name.rstrip("/"))) for top in (ROOT, PACKAGE))
