"""What git ignores is left out of the files that are offered."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from eaglechat.chat.writing.files import fitting, list_directory

TREE = (
    "a.py", "a.pyc", "keep.pyc", "build/a.o", "docs/build/page.md", "docs/notes.tmp",
    "docs/kept.tmp", "docs/secret.md", "private.txt", "-z",
)  # fmt: skip
RULES = {
    ".gitignore": "*.pyc\n!keep.pyc\n/build/\n*.tmp\n",
    "docs/.gitignore": "!kept.tmp\nsecret.*\n",
    ".git/info/exclude": "private.txt\n",
}


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name, rules in RULES.items():
        (tmp_path / name).write_text(rules)
    return tmp_path


def offered(directory: str, base: Path, name: str = "") -> list[str]:
    return [one.name for one in fitting(list_directory(directory, base), name)]


def test_what_is_ignored_is_not_offered(work_tree: Path) -> None:
    assert offered("", work_tree) == ["-z", "a.py", "docs", "keep.pyc"]
    assert offered("docs/", work_tree) == ["build", "kept.tmp"]
    assert offered("../docs/", work_tree / "docs") == ["build", "kept.tmp"]


def test_what_is_ignored_is_offered_where_nothing_else_fits(work_tree: Path) -> None:
    assert offered("", work_tree, "a.p") == ["a.py"]
    assert offered("", work_tree, "a.pyc") == ["a.pyc"]
    assert offered("", work_tree, "bu") == ["build"]
    assert offered("build/", work_tree) == ["a.o"]


@pytest.mark.skipif(os.name == "nt", reason="no such names on Windows")
def test_a_name_that_git_reads_as_a_pattern_is_a_name(work_tree: Path) -> None:
    (work_tree / ":(top)b.pyc").write_text("")
    assert offered("", work_tree, "b.") == [":(top)b.pyc"]
    assert ":(top)b.pyc" not in offered("", work_tree)


def test_without_a_work_tree_or_git_nothing_is_ignored(
    work_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    assert offered("", work_tree, "a") == ["a.py", "a.pyc"]
    monkeypatch.undo()
    shutil.rmtree(work_tree / ".git")
    assert offered("", work_tree, "a") == ["a.py", "a.pyc"]
