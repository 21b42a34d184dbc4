"""What git ignores is left out of the files that are offered."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from eaglechat.chat.writing.files import fitting, list_directory
from eaglechat.chat.writing.ignored import ignored_in

TREE = (
    "a.py", "a.pyc", "keep.pyc", "build/a.o", "docs/build/page.md", "docs/notes.tmp",
    "docs/kept.tmp", "docs/secret.md", "private.txt", "bracket[.md",
)  # fmt: skip
RULES = {
    ".gitignore": "*.pyc\n!keep.pyc\n/build/\n*.tmp\n!\n[z-a]\n\\\n",
    "docs/.gitignore": "!kept.tmp\nsecret.*\n",
    ".git/info/exclude": "private.txt\n",
}


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    (tmp_path / ".git" / "info").mkdir(parents=True)
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name, rules in RULES.items():
        (tmp_path / name).write_text(rules)
    return tmp_path


def offered(directory: str, base: Path, name: str = "") -> list[str]:
    return [one.name for one in fitting(list_directory(directory, base), name)]


def test_what_is_ignored_is_not_offered(work_tree: Path) -> None:
    assert offered("", work_tree) == ["a.py", "bracket[.md", "docs", "keep.pyc"]
    assert offered("docs/", work_tree) == ["build", "kept.tmp"]
    assert offered("../docs/", work_tree / "docs") == ["build", "kept.tmp"]


def test_what_is_ignored_is_offered_where_nothing_else_fits(work_tree: Path) -> None:
    assert offered("", work_tree, "a.p") == ["a.py"]
    assert offered("", work_tree, "a.pyc") == ["a.pyc"]
    assert offered("", work_tree, "bu") == ["build"]
    assert offered("build/", work_tree) == ["a.o"]


def test_without_a_work_tree_nothing_is_ignored(work_tree: Path) -> None:
    shutil.rmtree(work_tree / ".git")
    assert offered("", work_tree, "a") == ["a.py", "a.pyc"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_a_pipe_of_that_name_is_not_waited_for(work_tree: Path) -> None:
    (work_tree / ".gitignore").unlink()
    os.mkfifo(work_tree / ".gitignore")
    assert offered("", work_tree, "a.pyc") == ["a.pyc"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_says_the_same(work_tree: Path) -> None:
    shutil.rmtree(work_tree / ".git")
    subprocess.run(["git", "init", "-q"], cwd=work_tree, check=True)
    (work_tree / ".git" / "info" / "exclude").write_text(RULES[".git/info/exclude"])
    asked = subprocess.run(
        ["git", "check-ignore", *TREE], cwd=work_tree, capture_output=True, text=True, check=False
    )
    ours = [name for name in TREE if ignored_in((work_tree / name).parent)(Path(name).name, False)]
    assert ours == asked.stdout.splitlines()
