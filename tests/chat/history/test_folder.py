"""The folder of chats: what is found in them, and chats that are renamed, pinned or deleted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from eaglechat.chat.history.folder import (
    KEPT_DAYS,
    MOST_FOUND,
    ChatFolder,
    Trash,
    pin,
    rename,
)
from eaglechat.chat.history.listing import summarise
from eaglechat.chat.history.log import ChatInUseError, resumed_log
from eaglechat.chat.history.saved_chat import read_chat
from eaglechat.engine.templates.dialect import tagged
from tests.chat.headless import Headless, left_chat
from tests.chat.history.files import write_chat


@pytest.fixture
def chats(tmp_path: Path) -> ChatFolder:
    return ChatFolder(tmp_path / "chats")


def read(chats: ChatFolder) -> int:
    """Read what changed; how many chats that were."""
    return [progress.total for progress in chats.read()][-1]


def found(chats: ChatFolder, typed: str) -> list[str]:
    return [hit.excerpt.text for hit in chats.find(typed) or []]


def titles(chats: ChatFolder) -> list[str]:
    return [chat.title for chat in [*chats.listed()][-1]]


def test_questions_and_answers_are_found_with_the_words_around_them(
    chats: ChatFolder, tmp_path: Path
) -> None:
    file = left_chat(tmp_path, "Why is the sky blue?", reply="Rayleigh scattering explains it.")
    left_chat(tmp_path, "What is a monad?", reply="A monoid of endofunctors.")
    assert read(chats) == 2
    (hit,) = chats.find("sky") or []
    assert (hit.chat.file, hit.chat.title) == (file, "Why is the sky blue?")
    turn = read_chat(file).turns.find(hit.turn)
    assert turn is not None
    assert hit.excerpt.text == "Why is the sky blue?"
    assert found(chats, '"rayleigh scattering') == ["Rayleigh scattering explains it."]
    assert found(chats, "sky monad") == []


def test_only_chats_that_changed_are_read_again(chats: ChatFolder, tmp_path: Path) -> None:
    file = left_chat(tmp_path, "first")
    left_chat(tmp_path, "second")
    assert read(chats) == 2
    assert read(chats) == 0
    chat = Headless(tmp_path, read_chat(file))
    chat.ask("a third thing")
    chat.session.leave("")
    assert read(chats) == 1
    assert found(chats, "third") == ["a third thing"]
    assert found(chats, "first") == ["first"]


def test_every_branch_is_found_and_what_is_deleted_is_not(
    chats: ChatFolder, tmp_path: Path
) -> None:
    chat = Headless(tmp_path)
    chat.ask("apples")
    chat.session.edit(1, "pears")
    chat.finish()
    chat.ask("plums")
    chat.session.save("")
    read(chats)
    assert found(chats, "apples") == ["apples"]
    assert found(chats, "pears") == ["pears"]
    last = chat.session.turns.last
    assert last is not None
    chat.session.delete(last.id)
    chat.session.leave("")
    read(chats)
    assert found(chats, "plums") == []
    assert found(chats, "pears") == ["pears"]


def test_a_reply_that_is_still_written_is_found_as_far_as_it_is(
    chats: ChatFolder, tmp_path: Path
) -> None:
    chat = Headless(tmp_path)
    chat.engine.reply = "one two three four five six seven eight nine ten eleven twelve"
    chat.session.ask("count")
    chat.rounds(2)
    chat.session.save("")
    read(chats)
    assert len(found(chats, "one")) == 1
    assert found(chats, "twelve") == []
    chat.finish()
    chat.session.leave("")
    read(chats)
    assert len(found(chats, "one")) == len(found(chats, "twelve")) == 1


def test_reasoning_is_found_too(chats: ChatFolder, tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.dialect = tagged("<think>", "</think>")
    chat.engine.reply = "<think> Hmm, pondering hard </think> Because."
    chat.ask("why?")
    chat.session.leave("")
    read(chats)
    (hit,) = chats.find("pondering") or []
    assert (hit.is_thought, hit.excerpt.text) == (True, "Hmm, pondering hard")
    (hit,) = chats.find("because pondering") or []
    assert hit.is_thought
    (hit,) = chats.find("because") or []
    assert not hit.is_thought


def test_what_was_written_last_comes_first_and_no_chat_fills_the_list(chats: ChatFolder) -> None:
    for age, name in enumerate("abc"):
        file = write_chat(chats.directory / f"{name}.jsonl", *(f"same {name}{n}" for n in range(8)))
        os.utime(file, (1e9 - age, 1e9 - age))
    read(chats)
    assert [hit.chat.file.stem for hit in chats.find("same") or []] == [*"aaabbbccc"]


def test_titles_pins_and_deleted_chats(chats: ChatFolder, tmp_path: Path) -> None:
    one, two = left_chat(tmp_path, "one thing"), left_chat(tmp_path, "two things")
    assert titles(chats) == ["two things", "one thing"]
    read(chats)
    pin(one, True)
    rename(two, "renamed")
    assert titles(chats) == ["one thing", "renamed"]
    chats.trash.take(one)
    assert titles(chats) == ["renamed"]
    read(chats)
    assert found(chats, "thing") == ["two things"]
    assert chats.trash.restore(chats.directory) == one
    read(chats)
    assert len(found(chats, "thing")) == 2


def test_a_file_that_is_no_chat_is_listed_and_does_no_harm(chats: ChatFolder) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    (chats.directory / "b.jsonl").write_bytes(b"\xff no chat")
    (chats.directory / "c.jsonl").mkdir()
    read(chats)
    assert read(chats) == 0
    rows = [*chats.listed()][-1]
    assert [row.problem is None for row in rows].count(True) == 1
    assert found(chats, "fine") == ["fine"]


def test_a_chat_that_vanished_is_not_found(chats: ChatFolder) -> None:
    for name in "ab":
        write_chat(chats.directory / f"{name}.jsonl", f"fine {name}", "yes")
    read(chats)
    (chats.directory / "a.jsonl").unlink()
    read(chats)
    assert found(chats, "fine") == ["fine b"]
    shutil.rmtree(chats.directory)
    read(chats)
    assert titles(chats) == []


def test_the_most_hits_are_those_of_the_latest_chats(chats: ChatFolder) -> None:
    for n in range(MOST_FOUND):
        file = write_chat(chats.directory / f"{n}.jsonl", f"fine {n}", "fine too")
        os.utime(file, (1e9 - n, 1e9 - n))
    read(chats)
    hits = chats.find("fine") or []
    assert [hit.chat.file.stem for hit in hits] == [str(n // 2) for n in range(MOST_FOUND)]


def test_the_search_that_was_begun_last_counts_whichever_thread_comes_first(
    chats: ChatFolder,
) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    read(chats)
    first = chats.search("fi")
    last = chats.search("fine")
    assert [hit.excerpt.text for hit in last() or []] == ["fine"]
    assert first() is None


def test_a_file_whose_name_is_no_text_costs_the_others_nothing(chats: ChatFolder) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    try:
        write_chat(chats.directory / os.fsdecode(b"\xff.jsonl"), "odd", "yes")
    except OSError:
        pytest.skip("no such names in the file system here")
    assert titles(chats) == ["fine"]
    read(chats)
    assert found(chats, "fine") == ["fine"]


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
    chat.session.recorder.rename("because")
    chat.session.recorder.pin(True)
    file = chat.session.recorder.file
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
    assert titles(ChatFolder(tmp_path)) == ["old", "new", "oldest"]
    pin(tmp_path / "old.jsonl", False)
    assert titles(ChatFolder(tmp_path)) == ["new", "old", "oldest"]


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
    folder = tmp_path / "chats"
    now = 1e9
    trash = Trash(tmp_path / "trash", lambda: now)
    for name in ("a", "b"):
        now += 1
        trash.take(write_chat(folder / f"{name}.jsonl", name))
    assert titles(ChatFolder(folder)) == []
    assert trash.restore(folder) == folder / "b.jsonl"
    assert trash.restore(folder) == folder / "a.jsonl"
    assert trash.restore(folder) is None
    assert sorted(titles(ChatFolder(folder))) == ["a", "b"]


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
    log = resumed_log(read_chat(file), lambda _file, _why: None)
    with pytest.raises(ChatInUseError):
        Trash(tmp_path / "trash").take(file)
    log.close()
    assert file.exists()


def test_a_chat_that_came_again_is_not_overwritten(tmp_path: Path) -> None:
    trash = Trash(tmp_path / "trash")
    file = write_chat(tmp_path / "chats" / "a.jsonl", "old")
    trash.take(file)
    write_chat(file, "new")
    with pytest.raises(FileExistsError) as error:
        trash.restore(tmp_path / "chats")
    assert error.value.filename == str(file)
    assert titles(ChatFolder(tmp_path / "chats")) == ["new"]
