"""All chats of a folder: found as they are written, whatever happens to files and index."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import threading
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from eaglechat.chat.history.naming import pin, rename
from eaglechat.chat.history.reading import read_chat
from eaglechat.chat.search import index, shelf
from eaglechat.chat.search.shelf import ChatShelf
from tests.chat.headless import Headless
from tests.chat.history.files import write_chat
from tests.chat.records import end_of, thinking


@pytest.fixture
def chats(tmp_path: Path) -> ChatShelf:
    return ChatShelf(tmp_path / "chats")


def updated(chats: ChatShelf) -> int:
    """Bring the index up to date; how many chats were read for that."""
    return [progress.total for progress in chats.update()][-1]


def left_chat(folder: Path, *questions: str, reply: str = "so it is") -> Path:
    chat = Headless(folder)
    chat.engine.reply = reply
    for question in questions:
        chat.ask(question)
    chat.session.leave("")
    return chat.session.record.file


def found(chats: ChatShelf, typed: str, **how: bool) -> list[str]:
    return [hit.passage.text for hit in chats.find(typed, **how) or []]


def titles(chats: ChatShelf) -> list[str]:
    return [chat.title for chat in [*chats.listed()][-1]]


def test_questions_and_answers_are_found_with_the_words_around_them(
    chats: ChatShelf, tmp_path: Path
) -> None:
    file = left_chat(tmp_path, "Why is the sky blue?", reply="Rayleigh scattering explains it.")
    left_chat(tmp_path, "What is a monad?", reply="A monoid of endofunctors.")
    assert updated(chats) == 2
    (hit,) = chats.find("sky") or []
    assert (hit.chat.file, hit.chat.title) == (file, "Why is the sky blue?")
    turn = read_chat(file).turns.find(hit.turn)
    assert turn is not None
    assert hit.passage.text == "Why is the sky blue?"
    assert found(chats, '"rayleigh scattering') == ["Rayleigh scattering explains it."]
    assert found(chats, "sky monad") == []


def test_only_chats_that_changed_are_read_again(chats: ChatShelf, tmp_path: Path) -> None:
    file = left_chat(tmp_path, "first")
    left_chat(tmp_path, "second")
    assert updated(chats) == 2
    assert updated(chats) == 0
    chat = Headless(tmp_path, read_chat(file))
    chat.ask("a third thing")
    chat.session.leave("")
    assert updated(chats) == 1
    assert found(chats, "third") == ["a third thing"]
    assert found(chats, "first") == ["first"]


def test_every_branch_is_found_and_what_is_deleted_is_not(chats: ChatShelf, tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("apples")
    chat.session.edit(1, "pears")
    chat.finish()
    chat.ask("plums")
    chat.session.save("")
    updated(chats)
    assert found(chats, "apples") == ["apples"]
    assert found(chats, "pears") == ["pears"]
    last = chat.session.turns.last
    assert last is not None
    chat.session.delete(last.id)
    chat.session.leave("")
    updated(chats)
    assert found(chats, "plums") == []
    assert found(chats, "pears") == ["pears"]


def test_a_reply_that_is_still_written_is_found_as_far_as_it_is(
    chats: ChatShelf, tmp_path: Path
) -> None:
    chat = Headless(tmp_path)
    chat.engine.reply = "one two three four five six seven eight nine ten eleven twelve"
    chat.session.ask("count")
    chat.rounds(2)
    chat.session.save("")
    updated(chats)
    assert len(found(chats, "one")) == 1
    assert found(chats, "twelve") == []
    chat.finish()
    chat.session.leave("")
    updated(chats)
    assert len(found(chats, "one")) == len(found(chats, "twelve")) == 1


def test_reasoning_is_found_on_request(chats: ChatShelf, tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    reply = chat.session.turns.last_reply
    assert reply is not None
    chat.session.answer_again(reply.id)
    running = chat.session.running
    assert running is not None
    running.turn.recording.add(thinking(" Hmm,", " pondering"))
    running.turn.recording.finish(end_of(2, 10.0), None)
    chat.session._end()
    chat.session.leave("")
    updated(chats)
    assert found(chats, "pondering") == []
    (hit,) = chats.find("pondering", with_thoughts=True) or []
    assert (hit.is_thought, hit.passage.text) == (True, "Hmm, pondering")


def test_beginnings_are_completed_from_the_index_however_many_there_are(chats: ChatShelf) -> None:
    words = " ".join(f"beginning{n}" for n in range(200))
    write_chat(chats.directory / "a.jsonl", words, "yes")
    write_chat(chats.directory / "b.jsonl", "beginners begin", "yes")
    updated(chats)
    assert len(found(chats, "beginn")) == 2
    assert len(found(chats, "beginner")) == 1
    assert len(found(chats, '"beginners beg')) == 1
    assert len(found(chats, "beginning1")) == 1
    assert found(chats, "beginnings") == []


def test_what_was_written_last_comes_first_and_no_chat_fills_the_list(chats: ChatShelf) -> None:
    for age, name in enumerate("abc"):
        file = write_chat(chats.directory / f"{name}.jsonl", *(f"same {name}{n}" for n in range(8)))
        os.utime(file, (1e9 - age, 1e9 - age))
    updated(chats)
    assert [hit.chat.file.stem for hit in chats.find("same") or []] == [*"aaabbbccc"]


def test_titles_pins_and_deleted_chats(chats: ChatShelf, tmp_path: Path) -> None:
    one, two = left_chat(tmp_path, "one thing"), left_chat(tmp_path, "two things")
    assert titles(chats) == ["two things", "one thing"]
    updated(chats)
    pin(one, True)
    rename(two, "renamed")
    assert titles(chats) == ["one thing", "renamed"]
    chats.trash.take(one)
    assert titles(chats) == ["renamed"]
    updated(chats)
    assert found(chats, "thing") == ["two things"]
    assert chats.trash.restore(chats.directory) == one
    updated(chats)
    assert len(found(chats, "thing")) == 2


def test_a_file_that_is_no_chat_is_listed_and_does_no_harm(chats: ChatShelf) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    (chats.directory / "b.jsonl").write_bytes(b"\xff no chat")
    (chats.directory / "c.jsonl").mkdir()
    updated(chats)
    assert updated(chats) == 0
    rows = [*chats.listed()][-1]
    assert [row.problem is None for row in rows].count(True) == 1
    assert found(chats, "fine") == ["fine"]


def test_the_index_is_a_cache(chats: ChatShelf) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    updated(chats)
    for file in chats.index_file.parent.glob("chats.sqlite3*"):
        file.unlink()
    assert found(chats, "fine") == []
    assert updated(chats) == 1
    assert found(chats, "fine") == ["fine"]


@pytest.mark.parametrize("damage", ["no database at all" * 500, "", "half"])
def test_a_damaged_index_is_made_anew(chats: ChatShelf, damage: str) -> None:
    for n in range(300):
        write_chat(chats.directory / f"{n}.jsonl", f"fine {n}", "yes")
    updated(chats)
    if damage == "half":
        raw = chats.index_file.read_bytes()
        chats.index_file.write_bytes(raw[:4096] + b"\xff" * (len(raw) - 4096))
    else:
        chats.index_file.write_text(damage)
    assert len(titles(chats)) == 300
    for _ in range(2):
        [*chats.update()]
    assert chats.problem is None
    assert len(found(chats, "fine")) == shelf.MOST_FOUND


def test_an_index_of_another_version_is_made_anew(chats: ChatShelf) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    base = sqlite3.connect(chats.index_file)
    base.executescript("CREATE TABLE chats (x); PRAGMA user_version = 99;")
    base.close()
    updated(chats)
    assert found(chats, "fine") == ["fine"]


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write")
def test_where_nothing_can_be_written_the_list_is_read_from_the_files(
    chats: ChatShelf, tmp_path: Path
) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    tmp_path.chmod(0o500)
    try:
        assert titles(chats) == ["fine"]
        [*chats.update()]
        assert chats.find("fine") == []
        assert "cannot be used" in (chats.problem or "")
    finally:
        tmp_path.chmod(0o700)


def test_where_the_index_cannot_be_the_list_is_read_from_the_files(chats: ChatShelf) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    chats.index_file.mkdir()
    assert titles(chats) == ["fine"]
    [*chats.update()]
    assert chats.find("fine") == []
    assert f"its index, {chats.index_file}, cannot be used" in (chats.problem or "")


def test_without_fts5_the_list_is_read_from_the_files(
    chats: ChatShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    monkeypatch.setattr(index, "_SCHEMA", index._SCHEMA.replace("USING fts5", "USING fts5_not"))
    assert titles(chats) == ["fine"]
    [*chats.update()]
    assert chats.find("fine") == []
    assert "FTS5" in (chats.problem or "")


def update_and_die(directory: Path) -> None:
    """A process that is killed within its first batch."""

    def die(*_anything: object) -> None:
        os._exit(1)

    index.Index._take_turns = die  # type: ignore[method-assign]
    [*ChatShelf(directory).update()]


def test_another_instance_that_is_killed_while_it_builds_leaves_no_harm(chats: ChatShelf) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    process = multiprocessing.get_context("spawn").Process(
        target=update_and_die, args=(chats.directory,)
    )
    process.start()
    process.join()
    assert process.exitcode == 1
    assert updated(chats) == 1
    assert found(chats, "fine") == ["fine"]


def test_an_index_that_another_one_makes_just_now_is_waited_for(chats: ChatShelf) -> None:
    write_chat(chats.directory / "a.jsonl", "Why is the sky blue?", "yes")
    with closing(sqlite3.connect(chats.index_file, check_same_thread=False)) as another:
        another.execute("BEGIN IMMEDIATE")
        done = threading.Timer(0.3, another.rollback)
        done.start()
        assert updated(chats) == 1
        done.join()
    assert found(chats, "sky") == ["Why is the sky blue?"]


def test_one_instance_builds_while_another_searches(chats: ChatShelf) -> None:
    for name in "ab":
        write_chat(chats.directory / f"{name}.jsonl", f"fine {name}", "yes")
    other = ChatShelf(chats.directory)
    building = chats.update()
    next(building)
    assert [*other.update()] == []
    assert other.find("fine") == []
    assert other.problem is None
    assert [progress.done for progress in building] == [2]
    assert len(found(other, "fine")) == 2


def test_chats_that_are_gone_wear_the_index_out_and_it_is_made_anew(
    chats: ChatShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_GONE_AT_MOST", 3)
    for name in "abcdef":
        write_chat(chats.directory / f"{name}.jsonl", "fine", "yes")
    updated(chats)
    for name in "abcde":
        (chats.directory / f"{name}.jsonl").unlink()
    assert updated(chats) == 0
    assert updated(chats) == 1
    assert updated(chats) == 0
    assert found(chats, "fine") == ["fine"]


def test_a_chat_that_vanished_since_is_passed_over(chats: ChatShelf) -> None:
    for name in "ab":
        write_chat(chats.directory / f"{name}.jsonl", f"fine {name}", "yes")
    updated(chats)
    (chats.directory / "a.jsonl").unlink()
    assert found(chats, "fine") == ["fine b"]
    shutil.rmtree(chats.directory)
    updated(chats)
    assert titles(chats) == []


def test_a_search_that_another_one_overtakes_says_nothing(
    chats: ChatShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    updated(chats)
    inner: list[object] = []
    search = index.Index.search

    def overtaken(self: index.Index, *query: object, **how: bool) -> object:
        monkeypatch.setattr(index.Index, "search", search)
        inner.append(chats.find("nothing"))
        return search(self, *query, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(index.Index, "search", overtaken)
    monkeypatch.setattr(chats, "_one_at_a_time", nullcontext())
    assert chats.find("fine") is None
    assert inner == [[]]


def test_the_search_that_was_begun_last_counts_whichever_thread_comes_first(
    chats: ChatShelf,
) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    updated(chats)
    first = chats.search("fi", with_thoughts=False)
    last = chats.search("fine", with_thoughts=False)
    assert [hit.passage.text for hit in last() or []] == ["fine"]
    assert first() is None


def test_a_search_that_is_ended_leaves_no_problem(
    chats: ChatShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object, **__: object) -> object:
        assert chats.find("") == []
        raise sqlite3.OperationalError("interrupted")

    monkeypatch.setattr(index.Index, "search", ended)
    assert chats.find("fine") is None
    assert chats.problem is None


def test_a_file_whose_name_is_no_text_costs_the_others_nothing(chats: ChatShelf) -> None:
    write_chat(chats.directory / "a.jsonl", "fine", "yes")
    try:
        write_chat(chats.directory / os.fsdecode(b"\xff.jsonl"), "odd", "yes")
    except OSError:
        pytest.skip("no such names in the file system here")
    assert titles(chats) == ["fine"]
    updated(chats)
    assert found(chats, "fine") == ["fine"]
