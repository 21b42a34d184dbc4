"""The house: no two files need each other, and the pages name only paths that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "eaglechat"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_paths_that_are_there(page: Path) -> None:
    """In code marks: from the top, or of a room as the page about the house writes it."""
    text = page.read_text(encoding="utf-8")
    rooms = [path.name for path in PACKAGE.iterdir() if path.is_dir()]
    named = re.findall(rf"`((?:eaglechat|tests|docs|{'|'.join(rooms)})/[\w./*-]*)`", text)
    assert [name for name in named if not is_there(name)] == []


def is_there(name: str) -> bool:
    return any(any(top.glob(name.rstrip("/"))) for top in (ROOT, PACKAGE))
