"""Files for a question: paths as they are typed, and what can be read."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.chat.writing.files import (
    MOST_BYTES,
    Listed,
    as_typed,
    fitting,
    list_directory,
    read_part,
    typed_path,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("before", "path"),
    [
        ("@", (0, "", "")), ("see @docs/ar", (4, "docs/", "ar")),
        ("@/etc/ho", (0, "/etc/", "ho")), ("@~/x", (0, "~/", "x")),
        ('in @"my docs/a b', (3, "my docs/", "a b")),
        ("me@example.org", None), ("@docs/a b", None), ("", None), ('@"a" b', None),
    ],
)  # fmt: skip
def test_a_path_is_typed_behind_an_at(before: str, path: tuple[int, str, str] | None) -> None:
    assert typed_path(before) == path


@given(st.text(max_size=30))
def test_whatever_is_typed_a_path_ends_at_the_cursor(before: str) -> None:
    path = typed_path(before)
    if path is not None:
        start, directory, name = path
        assert before[start] == "@"
        assert before.endswith(directory + name)


@given(st.lists(st.text("ab .-é", min_size=1, max_size=5), min_size=1, max_size=3).map("/".join))
def test_a_path_that_is_put_there_is_read_as_it_is(path: str) -> None:
    found = typed_path(f"see {as_typed(path)}")
    assert found is not None
    start, directory, name = found
    assert (start, directory + name) == (4, path)


def test_a_directory_is_listed_hidden_things_on_request(here: Path) -> None:
    for name in ("notes.md", ".git", "Notebook", "other notes"):
        (here / name).write_text("x" * 10)
    (here / "folder").mkdir()
    # An entry that cannot be read takes no other with it.
    (here / "loop").symlink_to("loop")
    listed = list_directory("")
    assert Listed("notes.md", 10) in listed
    assert Listed("folder", None) in listed
    assert [one.name for one in fitting(listed, "not")] == ["Notebook", "notes.md", "other notes"]
    seen = ["folder", "Notebook", "notes.md", "other notes"]
    assert [one.name for one in fitting(listed, "")] == seen
    assert [one.name for one in fitting(listed, ".")] == [".git"]
    assert list_directory("nowhere/") == ()
    assert list_directory("\0") == ()
    assert list_directory("~nobody-of-this-name/") == ()


def test_a_text_file_is_a_part(here: Path) -> None:
    (here / "a.py").write_bytes(b"\xef\xbb\xbfx = 1\r\n")
    part = read_part("a.py", 8192)
    assert (part.name, part.text) == ("a.py", "a.py:\n```py\nx = 1\n```")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("image.png", b"\x89PNG\0\0", "image.png is not a text file."),
        ("latin.txt", b"caf\xe9", "latin.txt is not text in UTF-8."),
        ("long.txt", b"word " * 20_000, "long.txt has about 25,000 tokens, and the context holds"),
        ("huge.txt", b"x" * (MOST_BYTES + 1), "huge.txt is too large: 1.0 MB"),
        ("gone.txt", None, "gone.txt cannot be read: No such file"),
        ("\0", None, "cannot be read"),
        ("~nobody-of-this-name/x", None, "cannot be read"),
    ],
    ids=["binary", "latin", "long", "huge", "gone", "nul", "nobody"],
)
def test_what_cannot_be_attached_is_said(
    here: Path, name: str, content: bytes | None, why: str
) -> None:
    if content is not None:
        (here / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(why)):
        read_part(name, 8192)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_a_pipe_is_not_waited_for(here: Path) -> None:
    os.mkfifo(here / "pipe")
    with pytest.raises(ValueError, match="is not a file"):
        read_part("pipe", 0)
    assert list_directory("") == ()
