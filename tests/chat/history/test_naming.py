"""Titles, pins and deleted chats: lines of the file, and a folder aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eaglechat.chat.history.listing import list_chats, summarise
from eaglechat.chat.history.log import resumed_log
from eaglechat.chat.history.naming import ChatInUseError, pin, rename
from eaglechat.chat.history.reading import read_chat
from eaglechat.chat.history.trash import KEPT_DAYS, Trash
from tests.chat.headless import Headless
from tests.chat.history.files import write_chat


def left_chat(folder: Path, *questions: str) -> Path:
    chat = Headless(folder)
    for question in questions:
        chat.ask(question)
    file = chat.session.record.file
    chat.session.leave("")
    return file


def titles(directory: Path) -> list[str]:
    return [chat.title for chat in [*list_chats(directory)][-1]]


def test_a_chat_keeps_the_title_it_is_given_and_has_not_been_used_by_that(tmp_path: Path) -> None:
    file = left_chat(tmp_path, "why?")
    os.utime(file, (1e9, 1e9))
    rename(file, "  A better\nname ")
    assert (summarise(file).title, summarise(file).used) == ("A better name", 1e9)
    resumed = Headless(tmp_path, read_chat(file))
    resumed.ask("and now?")
    resumed.session.leave("")
    assert summarise(file).title == "A better name"
    rename(file, "")
    assert summarise(file).title == "why?"


def test_a_chat_that_is_open_is_named_and_pinned_through_its_own_log(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    chat.session.record.rename("because")
    chat.session.record.pin(True)
    file = chat.session.record.file
    assert (summarise(file).title, summarise(file).pinned) == ("because", True)
    with pytest.raises(ChatInUseError):
        rename(file, "elsewhere")
    chat.session.leave("")
    assert (read_chat(file).title, read_chat(file).pinned) == ("because", True)


def test_pinned_chats_come_first(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old", "oldest")):
        file = write_chat(tmp_path / f"{name}.jsonl", name)
        os.utime(file, (1e9 - age, 1e9 - age))
    pin(tmp_path / "old.jsonl", True)
    assert titles(tmp_path) == ["old", "new", "oldest"]
    pin(tmp_path / "old.jsonl", False)
    assert titles(tmp_path) == ["new", "old", "oldest"]


def test_a_line_is_added_behind_one_that_a_crash_cut_short(tmp_path: Path) -> None:
    file = left_chat(tmp_path, "why?")
    file.write_bytes(file.read_bytes()[:-20])
    rename(file, "named")
    assert (read_chat(file).title, summarise(file).title) == ("named", "named")


def test_what_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    file = left_chat(tmp_path, "why?")
    file.unlink()
    with pytest.raises(FileNotFoundError):
        rename(file, "named")
    assert not file.exists()


def test_deleted_chats_come_back_latest_first(tmp_path: Path) -> None:
    chats = tmp_path / "chats"
    now = 1e9
    trash = Trash(tmp_path / "trash", lambda: now)
    for name in ("a", "b"):
        now += 1
        trash.take(write_chat(chats / f"{name}.jsonl", name))
    assert titles(chats) == []
    assert trash.restore(chats) == chats / "b.jsonl"
    assert trash.restore(chats) == chats / "a.jsonl"
    assert trash.restore(chats) is None
    assert sorted(titles(chats)) == ["a", "b"]


def test_deleted_chats_are_gone_for_good_after_a_month_and_nothing_else_is(tmp_path: Path) -> None:
    now = 1e9
    trash = Trash(tmp_path / "trash", lambda: now)
    trash.take(write_chat(tmp_path / "a.jsonl", "a"))
    (tmp_path / "trash" / "mine.jsonl").write_text("not ours")
    now += KEPT_DAYS * 86400 - 1
    trash.empty()
    assert len([*(tmp_path / "trash").iterdir()]) == 2
    now += 2
    trash.empty()
    assert [file.name for file in (tmp_path / "trash").iterdir()] == ["mine.jsonl"]


def test_a_chat_that_another_program_writes_to_is_not_deleted(tmp_path: Path) -> None:
    file = left_chat(tmp_path, "why?")
    log = resumed_log(read_chat(file), lambda _sentence: None)
    with pytest.raises(ChatInUseError, match="open in another eaglechat"):
        Trash(tmp_path / "trash").take(file)
    log.close()
    assert file.exists()


def test_a_chat_that_came_again_is_not_overwritten(tmp_path: Path) -> None:
    trash = Trash(tmp_path / "trash")
    file = write_chat(tmp_path / "chats" / "a.jsonl", "old")
    trash.take(file)
    write_chat(file, "new")
    with pytest.raises(FileExistsError):
        trash.restore(tmp_path / "chats")
    assert titles(tmp_path / "chats") == ["new"]
