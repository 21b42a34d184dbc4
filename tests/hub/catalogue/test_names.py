"""What a repository or an address may call a file or a revision."""

from __future__ import annotations

from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.hub.catalogue.references import is_revision, is_safe_path
from eaglechat.hub.errors import NotFoundError
from eaglechat.hub.local.cache import RepoCache

COMMIT = "0" * 40
GOOD_PATHS = ["m.gguf", "q8/m-00001-of-00002.gguf", "a b.gguf", "é.gguf", "console.gguf", ".hidden"]
BAD_PATHS = [
    "", "/", "..", "../evil.gguf", "/evil.gguf", "a/../../evil.gguf", "..\\evil", "C:/evil.gguf",
    "C:evil.gguf", "a/C:/b.gguf", "m.gguf:stream", "CON", "con.gguf", "a/nul.tar.gguf", "LPT1.gguf",
    "com¹.gguf", "aux /m.gguf", "m.gguf.", "m.gguf ", "a./m.gguf", "...", "m\0.gguf", "m\n.gguf",
]  # fmt: skip
GOOD_REVISIONS = ["main", "v1.0", "refs/pr/1", "refs/convert/parquet", "a+b_c-d", COMMIT]
BAD_REVISIONS = [
    "", "..", "../../etc", "a/../b", "a..b", "/abs", "a//b", "a/.b", "a./b", "a.", "a/", ".a", "-a",
    "C:evil", "a\\b", "con", "refs/nul", "main\n", "a b", "a\0",
]  # fmt: skip


@pytest.mark.parametrize("path", GOOD_PATHS)
def test_usual_names_are_places_in_the_folder(tmp_path: Path, path: str) -> None:
    assert RepoCache(tmp_path, "u/r").pointer(COMMIT, path).is_relative_to(tmp_path)


@pytest.mark.parametrize("path", BAD_PATHS)
def test_names_that_no_folder_can_keep_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(NotFoundError, match="leads out of its folder or means a device"):
        RepoCache(tmp_path, "u/r").pointer(COMMIT, path)


@pytest.mark.parametrize("revision", GOOD_REVISIONS)
def test_usual_revisions_are_places_under_refs(tmp_path: Path, revision: str) -> None:
    refs = RepoCache(tmp_path, "u/r").folder / "refs"
    assert RepoCache(tmp_path, "u/r").reference(revision).is_relative_to(refs)


@pytest.mark.parametrize("revision", BAD_REVISIONS)
def test_what_is_no_revision_reads_and_writes_nothing(tmp_path: Path, revision: str) -> None:
    cache = RepoCache(tmp_path, "u/r")
    for ask in (cache.reference, cache.snapshots, lambda r: cache.find("m.gguf", r)):
        with pytest.raises(NotFoundError, match="is not the name of a revision of u/r"):
            ask(revision)
    assert list(tmp_path.iterdir()) == []


PARTS = st.sampled_from(
    [".", "..", "/", "\\", "C:", "a", "con", "NUL", ".gguf", " ", "~", "\0", "lpt9", "main", "-"]
)


@given(st.lists(PARTS | st.characters(), max_size=8).map("".join))
def test_whatever_passes_stays_inside_on_every_system(text: str) -> None:
    for passes in (is_safe_path, is_revision):
        if passes(text):
            there = PureWindowsPath("D:/cache", text)
            assert there.parts[:2] == ("D:\\", "cache")
            assert ".." not in there.parts
            assert not any(PureWindowsPath(part).is_reserved() for part in there.parts)
            assert Path("/cache", text).is_relative_to("/cache")
