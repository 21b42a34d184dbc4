"""The list of chats, which reads no file whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eaglechat.chat.history import listing
from eaglechat.chat.history.listing import ChatSummary, summarise, title_of
from eaglechat.words.failures import unreadable
from tests.chat.headless import left_chat
from tests.chat.history.files import write_chat


def list_chats(directory: Path) -> list[ChatSummary]:
    """The last list, which is complete."""
    return [*listing.list_chats(directory)][-1]


def test_a_row_says_what_the_chat_is_about_and_how_long_it_is(tmp_path: Path) -> None:
    file = left_chat(tmp_path, "How tall\nis   it?", "And now?")
    (row,) = list_chats(tmp_path / "chats")
    assert row.header is not None
    assert (row.file, row.title, row.messages, row.problem) == (file, "How tall is it?", 4, None)
    assert row.header.pair == "scripted"


def test_half_a_character_in_a_question_is_counted_as_any_other(tmp_path: Path) -> None:
    row = summarise(left_chat(tmp_path, "\ud800 first", "second"))
    assert (row.title, row.messages) == ("? first", 4)


def test_only_both_ends_of_a_long_file_are_read(tmp_path: Path) -> None:
    file = left_chat(tmp_path, "why? " * 5000, *["more"] * 5)
    whole = summarise(file)
    assert whole.messages == 12
    assert len(whole.title) <= 160
    raw = file.read_bytes()
    head, tail = raw[: listing.HEAD_BYTES], raw[-listing.TAIL_BYTES :]
    file.write_bytes(head + b"\xff" * (len(raw) - len(head) - len(tail)) + tail)
    row = summarise(file)
    assert (row.title, row.messages) == (whole.title, 12)


@pytest.mark.parametrize(
    ("questions", "typed", "title", "messages"),
    [(("first\nline",), "", "first line", 2), ((), "a thought", "a thought", 0)],
)
def test_chats_cut_short_have_a_row_too(
    tmp_path: Path, questions: tuple[str, ...], typed: str, title: str, messages: int
) -> None:
    cut = left_chat(tmp_path, *questions, typed=typed)
    raw = cut.read_bytes()
    cut.write_bytes(raw[: raw.index(b'{"type":"summary"') + 9])
    assert (summarise(cut).title, summarise(cut).messages) == (title, messages)


def test_what_was_used_last_comes_first(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write_chat(tmp_path / f"{name}.jsonl", name)
    for age, name in enumerate(("c", "a", "b")):
        os.utime(tmp_path / f"{name}.jsonl", (1e9 - age, 1e9 - age))
    assert [chat.title for chat in list_chats(tmp_path)] == ["c", "a", "b"]


def test_files_that_cannot_be_read_are_listed_with_the_reason(tmp_path: Path) -> None:
    write_chat(tmp_path / "fine.jsonl", "fine")
    (tmp_path / "old.jsonl").write_text('{"type":"chat","created":"","pair":"p","target":"t"}\n')
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe nothing")
    (tmp_path / "y.jsonl").write_text("")
    (tmp_path / "z.jsonl").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    rows = {
        chat.file.name: chat.problem and unreadable(chat.problem) for chat in list_chats(tmp_path)
    }
    assert rows.keys() == {"fine.jsonl", "old.jsonl", "x.jsonl", "y.jsonl", "z.jsonl"}
    assert rows["fine.jsonl"] is None
    assert rows["old.jsonl"] == (
        "its format is version 1, and this eaglechat reads version 2 only; open it with the "
        "version of eaglechat that wrote it"
    )
    assert rows["x.jsonl"] == "it does not begin like a chat"
    assert rows["y.jsonl"] == "it is empty"
    assert "directory" in (rows["z.jsonl"] or "")


def test_a_chat_in_which_nothing_was_said_has_no_row(tmp_path: Path) -> None:
    write_chat(tmp_path / "one.jsonl")
    assert list_chats(tmp_path) == []
    assert list_chats(tmp_path / "nowhere") == []


def test_a_chat_that_was_only_typed_has_a_row(tmp_path: Path) -> None:
    left_chat(tmp_path, typed="a thought")
    (row,) = list_chats(tmp_path / "chats")
    assert isinstance(row, ChatSummary)
    assert (row.title, row.messages) == ("a thought", 0)


def test_a_title_is_one_line_and_not_too_long() -> None:
    assert title_of("  one\n\ttwo  ") == "one two"
    assert len(title_of("word " * 10_000)) <= 160


def test_a_long_list_is_shown_as_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "READ_AT_ONCE", 2)
    for name in "abcde":
        write_chat(tmp_path / f"{name}.jsonl", name)
    assert [len(rows) for rows in listing.list_chats(tmp_path)] == [2, 4, 5]
