"""The house: no two files need each other, and the pages name only paths that exist."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "eaglechat"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_no_files_need_each_other() -> None:
    """Imports inside functions and for type checking alone count too."""
    graph = grimp.build_graph("eaglechat", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert "eaglechat.links.http.server" in imports["eaglechat.cli.loading"]
    assert "eaglechat.hub.local.model" in imports["eaglechat.cli.pairs"]
    # Raises CycleError with the files of a circle.
    TopologicalSorter(imports).prepare()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_paths_that_are_there(page: Path) -> None:
    """In code marks: from the top, or of a room as the page about the house writes it."""
    text = page.read_text(encoding="utf-8")
    rooms = [path.name for path in PACKAGE.iterdir() if path.is_dir()]
    named = re.findall(rf"`((?:eaglechat|tests|docs|{'|'.join(rooms)})/[\w./*-]*)`", text)
    assert [name for name in named if not is_there(name)] == []


def is_there(name: str) -> bool:
    return any(any(top.glob(name.rstrip("/"))) for top in (ROOT, PACKAGE))
