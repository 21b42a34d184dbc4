"""The file of all chats: what the list and a search say, programs that share it, kills, full disks
and damage."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from eaglechat.chat import store as chat_store
from eaglechat.chat.recorder import ChatRecorder
from eaglechat.chat.recording import Recording, Terms, TurnPart
from eaglechat.chat.saved_chat import title_of
from eaglechat.chat.search import parse
from eaglechat.chat.store import KEPT_DAYS, MOST_FOUND, ChatStore
from eaglechat.chat.turns import Reply, Turns
from eaglechat.chat.writing.question import text_of
from eaglechat.engine.templates.dialect import tagged
from tests.chat.headless import Headless, left_chat, reopened
from tests.chat.home import Home, fresh, write_chat
from tests.chat.records import end_of
from tests.chat.test_search import FOUND, NOT_FOUND
from tests.chat.test_story import story

CODE = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> ChatStore:
    return Home(tmp_path).store


def found(store: ChatStore, typed: str) -> list[str]:
    return [hit.text for hit in store.find(typed)]


def titles(store: ChatStore) -> list[str]:
    return [chat.title for chat in store.listed()]


# The list


def test_a_row_says_what_the_chat_is_about_and_how_long_it_is(
    store: ChatStore, tmp_path: Path
) -> None:
    name = left_chat(tmp_path, "How tall\nis   it?", "And now?")
    left_chat(tmp_path, unsent="a thought")
    left_chat(tmp_path)
    thought, row = store.listed()
    assert (row.name, row.title, row.messages) == (name, "How tall is it?", 4)
    assert row.header.pair == "scripted"
    assert (thought.title, thought.messages) == ("a thought", 0)
    assert len(title_of("word " * 10_000)) <= 160
    left_chat(tmp_path, unsent="\n" * 1000 + "far down")
    assert titles(store)[0] == "far down"


def test_a_chat_that_no_list_would_show_is_not_in_the_file(
    store: ChatStore, tmp_path: Path
) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    chat.session.delete(1)
    chat.session.undo_delete()
    assert [row.messages for row in store.listed()] == [2]
    chat.session.delete(1)
    for typed in ("a secret", " \n"):
        chat.save(typed)
    Home(tmp_path).kill(chat)
    with store.opened() as db:
        assert not db.execute("SELECT name FROM chat").fetchall()


def test_half_characters_are_kept_as_question_marks(store: ChatStore, tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("\ud800 first")
    store.rename(chat.session.chat.name, "\ud800 named")
    chat.leave("\ud800 typed")
    (saved,) = store.saved()
    assert (saved.title, text_of(saved.unsent)) == ("? named", "? typed")
    assert saved.turns.path[0].text == "? first"


def test_what_was_used_last_comes_first_but_for_pinned_chats(
    store: ChatStore, tmp_path: Path
) -> None:
    names = [left_chat(tmp_path, text) for text in ("old", "older", "new")]
    store.pin(names[1], True)
    store.rename(names[0], "renamed")
    assert titles(store) == ["older", "new", "renamed"]
    assert [chat.title for chat in store.latest(2)] == ["new", "older"]
    chat = Home(tmp_path).open(names[0])
    chat.leave()
    assert titles(store) == ["older", "new", "renamed"]
    chat = Home(tmp_path).open(names[0])
    chat.ask("more")
    chat.leave()
    assert titles(store) == ["older", "renamed", "new"]


def test_models_of_chats_are_counted(store: ChatStore, tmp_path: Path) -> None:
    write_chat(store, "why?", "so")
    write_chat(store, "why?", "so")
    left_chat(tmp_path, "another pair")
    assert store.count_with(lambda file: file == "/d.gguf") == 2


# Search


def test_questions_and_answers_are_found_with_the_words_around_them(
    store: ChatStore, tmp_path: Path
) -> None:
    name = left_chat(tmp_path, "Why is the sky blue?", reply="Rayleigh scattering explains it.")
    left_chat(tmp_path, "What is a monad?", reply="A monoid of endofunctors.")
    (hit,) = store.find("sky")
    assert (hit.chat.name, hit.chat.title, hit.turn) == (name, "Why is the sky blue?", 1)
    assert hit.text == "Why is the sky blue?"
    assert found(store, '"rayleigh scattering') == ["Rayleigh scattering explains it."]
    assert found(store, "sky monad") == []
    assert found(store, "") == found(store, '"') == []


def test_the_index_finds_what_the_query_says_is_in_a_text(store: ChatStore) -> None:
    texts = sorted({text for _, text, *_ in (*FOUND, *NOT_FOUND)})
    for text in texts:
        write_chat(store, text)
    for typed in {typed for typed, *_ in (*FOUND, *NOT_FOUND)}:
        wanted = [text for text in texts if parse(typed).is_in(text)]
        assert sorted(hit.chat.title for hit in store.find(typed)) == [*map(title_of, wanted)]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_is_typed_raises(store: ChatStore, seed: int) -> None:
    write_chat(store, "fine NEAR to (OR) x* -y", "yes")
    rng = random.Random(seed)
    said: list[str] = []
    store.say = said.append
    for _ in range(30):
        pieces = rng.choices(['"', "*", "(", "NEAR", "OR", "fine", ":", "^", "\0", "東", "-"], k=6)
        store.find(rng.choice(["", " "]).join(pieces))
    assert not said


def test_reasoning_is_found_too(store: ChatStore, tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.dialect = tagged("<think>", "</think>")
    chat.engine.reply = "<think> Hmm, pondering hard </think> Because."
    chat.ask("why?")
    chat.leave()
    (hit,) = store.find("pondering")
    assert (hit.is_thought, hit.text) == (True, "Hmm, pondering hard")
    (hit,) = store.find("because pondering")
    assert hit.is_thought
    (hit,) = store.find("because")
    assert not hit.is_thought


def test_no_chat_fills_the_list_and_the_latest_come_first(store: ChatStore) -> None:
    for n in range(MOST_FOUND // 2 + 2):
        write_chat(store, *(f"same {n} {turn}" for turn in range(8 if n % 2 else 1)))
    hits = store.find("same")
    assert len(hits) == MOST_FOUND
    last = MOST_FOUND // 2 + 1
    assert [hit.text for hit in hits[:5]] == [
        f"same {last} 7", f"same {last} 6", f"same {last} 5",
        f"same {last - 1} 0", f"same {last - 2} 7",
    ]  # fmt: skip


# One program after another


def test_a_chat_is_opened_without_reading_its_rounds(
    store: ChatStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, opened = left_chat(tmp_path, "why?", "and then?"), list[bytes]()
    unpack = chat_store.unpack
    monkeypatch.setattr(
        chat_store, "unpack", lambda packed: opened.append(packed) or unpack(packed)
    )
    chat = store.read(name)
    assert [turn.text for turn in chat.turns.path][1::2] == ["so it is"] * 2
    reply = chat.turns.last_reply
    assert reply is not None
    assert reply.recording.n_past > 0
    assert not opened
    assert "".join(one.text for one in reply.recording.rounds) == "so it is"
    assert len(opened) == 1


def test_rounds_that_are_damaged_are_text(store: ChatStore, tmp_path: Path) -> None:
    left_chat(tmp_path, "why?", reply="so it is")
    with store.opened() as db:
        db.execute("UPDATE rounds SET packed = x'00'")
    (chat,) = store.saved()
    (reply,) = [turn for turn in chat.turns if isinstance(turn, Reply)]
    assert (reply.text, [round_.text for round_ in reply.recording.rounds]) == (
        "so it is",
        ["so it is"],
    )


def test_a_reply_of_many_rounds_is_kept_piece_by_piece(store: ChatStore, tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.reply = " ".join(map(str, range(1500)))
    assert chat.begin("count")
    for rounds in (3, 255, 256, 300, 500):
        chat.rounds(rounds)
        chat.save()
        (saved,) = store.saved()
        reply = saved.turns.last_reply
        assert reply is not None
        assert reply.text == chat.texts[-1]
    chat.finish()
    again = reopened(chat)
    assert again.texts[-1] == chat.engine.reply
    rounds_of = [c.session.turns.path[-1].recording.rounds for c in (chat, again)]  # type: ignore[union-attr]
    assert [r.tokens for r in rounds_of[0]] == [r.tokens for r in rounds_of[1]]


def test_a_reply_that_is_settled_without_a_round_is_kept(store: ChatStore) -> None:
    recorder = fresh(store)
    turns = recorder.chat.turns
    reply = turns.answer(turns.ask([TurnPart("why?")]).id, Recording(Terms()))
    recorder.running = reply
    recorder.keep()
    reply.recording.settle(())
    recorder.keep()
    reply.recording.finish(end_of(0, 0.0), None)
    recorder.running = None
    recorder.keep()
    recorder.left(())
    (saved,) = store.saved()
    (kept,) = [turn for turn in saved.turns if isinstance(turn, Reply)]
    assert (kept.text, kept.recording.end) == ("", reply.recording.end)


def test_no_file_before_there_is_something_to_keep(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.save()
    chat.leave()
    assert not [*tmp_path.glob("chats*")]


# Programs that share the file


def test_a_second_program_is_told_and_writes_to_a_copy(store: ChatStore, tmp_path: Path) -> None:
    first = Headless(tmp_path)
    first.ask("mine")
    (saved,) = store.saved()
    second = Headless(tmp_path, saved)
    assert any("open in another eaglechat" in text for text in second.shown)
    first.ask("more of mine")
    second.ask("yours")
    first.leave()
    second.leave()
    copy, original = store.saved()
    assert [t.text for t in original.turns.path][::2] == ["mine", "more of mine"]
    assert [t.text for t in copy.turns.path][::2] == ["mine", "yours"]


def test_a_second_program_that_only_looks_leaves_no_copy(store: ChatStore, tmp_path: Path) -> None:
    first = Headless(tmp_path)
    first.ask("mine")
    (saved,) = store.saved()
    Headless(tmp_path, saved).leave()
    assert len(store.listed()) == 1


def test_a_chat_that_is_open_is_renamed_and_pinned_but_not_deleted(store: ChatStore) -> None:
    name = write_chat(store, "why?", "so")
    recorder = ChatRecorder(store, store.read(name))
    store.rename(name, "named")
    store.pin(name, True)
    with pytest.raises(OSError, match="another eaglechat"):
        store.delete(name)
    recorder.save((TurnPart("more"),))
    assert [(row.name, row.title, row.pinned) for row in store.listed()] == [(name, "named", True)]
    recorder.left(())
    store.delete(name)
    assert not store.listed()


def test_what_another_program_wrote_since_the_chat_was_read_is_there(
    store: ChatStore, tmp_path: Path
) -> None:
    name = left_chat(tmp_path, "first")
    read = store.read(name)
    other = Home(tmp_path).open(name)
    other.ask("second")
    other.leave("typed")
    chat = Headless(tmp_path, read)
    assert chat.texts[::2] == ["first", "second"]
    assert chat.session.chat.unsent[0].text == "typed"
    chat.ask("third")
    chat.leave()
    assert [t.text for t in store.read(name).turns.path][::2] == ["first", "second", "third"]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_where_no_lock_protects_a_chat_nothing_is_lost(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """As on a file system without locks: both programs think that the chat is theirs alone."""
    name = write_chat(store, "first", "so")
    monkeypatch.setattr(ChatStore, "is_held", lambda _store, _owner: False)
    one, two = ChatRecorder(store, store.read(name)), ChatRecorder(store, store.read(name))
    for recorder, text in ((one, "of one"), (two, "of two")):
        if recorder is two and is_deleted:
            store.delete(name)
        recorder.chat.turns.ask([TurnPart(text)])
        recorder.keep()
    assert {text_of(chat.unsent) for chat in store.saved()} == {"of one", "of two"}


WRITER = """
import sys
from pathlib import Path
from tests.chat.headless import Headless

chat = Headless(Path(sys.argv[1]))
chat.engine.reply = " ".join(map(str, range(int(sys.argv[2]))))
print(flush=True)
chat.begin("count")
while chat.session.running:
    seen = len(chat.session.shown.rounds)
    chat.pump_until(lambda: not chat.session.running or len(chat.session.shown.rounds) > seen)
    chat.save("typed")
    print(len(chat.session.shown.rounds), flush=True)
chat.leave("typed")
"""


def writer(folder: Path, words: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(words)]
    process = subprocess.Popen(command, cwd=CODE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("lines_before", [1, 7, 90])
def test_a_kill_loses_nothing_that_was_saved(
    store: ChatStore, tmp_path: Path, lines_before: int
) -> None:
    child = writer(tmp_path, 10_000)
    assert child.stdout is not None
    saved_rounds = 0
    for _ in range(lines_before):
        saved_rounds = int(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with store.opened() as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    (saved,) = store.saved()
    reply = saved.turns.last_reply
    assert reply is not None
    rounds = reply.recording.rounds
    assert len(rounds) >= saved_rounds
    assert reply.text == "".join(r.text for r in rounds)
    assert reply.text.startswith("0 1 2")
    assert text_of(saved.unsent) == "typed"
    chat = Headless(tmp_path, store.read(saved.name))
    assert not any("another eaglechat" in text for text in chat.shown)
    assert store.find("count")
    assert store.find('"0 1 2"')
    chat.ask("go on")
    chat.leave()
    (again,) = store.saved()
    assert [t.text for t in again.turns.path][:3] == ["count", reply.text, "go on"]


def test_programs_that_write_at_the_same_time_lose_nothing(
    store: ChatStore, tmp_path: Path
) -> None:
    children = [writer(tmp_path, 400) for _ in range(3)]
    while any(child.poll() is None for child in children):
        for name in [chat.name for chat in store.listed()]:
            store.read(name)
        store.find("count")
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
    chats = [*store.saved()]
    assert [child.returncode for child in children] == [0, 0, 0]
    whole = " ".join(map(str, range(400)))
    assert [[turn.text for turn in chat.turns.path] for chat in chats] == [["count", whole]] * 3
    assert not [*tmp_path.glob("*.lock")]


# What goes


def test_deleted_chats_come_back_latest_first_and_are_gone_for_good_after_a_month(
    store: ChatStore, tmp_path: Path
) -> None:
    now = 1e9
    store.clock = lambda: now
    names = [write_chat(store, f"secret{n}") for n in range(3)]
    for name in names:
        now += 1
        store.delete(name)
    assert titles(store) == found(store, "secret1") == []
    assert [store.restore(), store.restore()] == [names[2], names[1]]
    assert found(store, "secret1") == ["secret1"]
    now += 10
    store.delete(names[1])
    now += KEPT_DAYS * 86400 - 1
    store.empty_trash()
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"secret0" not in content
    assert b"secret1" in content
    now += 2
    store.empty_trash()
    assert store.restore() is None
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"secret1" not in content
    assert b"secret2" in content


def test_what_is_gone_cannot_be_changed(store: ChatStore) -> None:
    name = write_chat(store, "why?")
    store.delete(name)
    for change in (lambda: store.rename(name, "named"), lambda: store.delete(name)):
        with pytest.raises(FileNotFoundError, match=name):
            change()
    with pytest.raises(FileNotFoundError, match=name):
        store.read(name)


# Files that cannot be used


def test_a_chat_that_cannot_be_kept_goes_on_and_is_kept_once_it_can(
    store: ChatStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Headless(tmp_path)
    chat.ask("first")
    connect = ChatStore.connect

    def on_a_full_disk(of: ChatStore) -> sqlite3.Connection:
        db = connect(of)
        db.execute("PRAGMA max_page_count = 1")
        return db

    killed_db = chat.session.recorder._db
    assert killed_db is not None
    killed_db.execute("PRAGMA max_page_count = 1")
    monkeypatch.setattr(ChatStore, "connect", on_a_full_disk)
    for text in ("x" * 50_000, "y" * 50_000):
        chat.ask(text)
        chat.save()
    assert len(chat.said) == 1
    assert "This chat cannot be saved to" in chat.said[0]
    assert "full" in chat.said[0]
    assert chat.session.recorder.is_behind
    chat.session.delete(chat.session.turns.path[4].id)
    monkeypatch.undo()
    chat.save("typed")
    assert not chat.session.recorder.is_behind
    (saved,) = store.saved()
    assert story(saved.turns) == story(chat.session.turns)
    assert text_of(saved.unsent) == "typed"


def full(_of: ChatStore) -> sqlite3.Connection:
    raise OSError("no space")


def test_what_could_not_be_kept_and_is_no_longer_there_is_not_missed(
    store: ChatStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Headless(tmp_path)
    monkeypatch.setattr(ChatStore, "connect", full)
    chat.save("typed")
    assert chat.session.recorder.is_behind
    monkeypatch.undo()
    chat.save()
    assert not chat.session.recorder.is_behind
    assert not store.listed()


def test_a_reply_that_went_on_while_nothing_could_be_kept_is_kept_whole(
    store: ChatStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Headless(tmp_path)
    chat.begin("why?")
    chat.rounds(3)
    chat.session.stop()
    chat.finish()
    db = chat.session.recorder._db
    assert db is not None
    db.close()
    monkeypatch.setattr(ChatStore, "connect", full)
    assert chat.session.continue_reply(2)
    chat.finish()
    assert chat.session.recorder.is_behind
    monkeypatch.undo()
    chat.save()
    (saved,) = store.saved()
    assert saved.turns.reply(2).text == chat.texts[-1]
    rounds_of = [one.turns.reply(2).recording.rounds for one in (saved, chat.session)]
    assert len(rounds_of[0]) == len(rounds_of[1])


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the place of a folder")
    chat = Headless(tmp_path / "file")
    chat.ask("why?")
    chat.save("typed")
    assert chat.session.recorder.reader()().turns.path[0].text == "why?"
    chat.leave("typed")
    assert len(chat.said) == 1
    assert "cannot be saved" in chat.said[0]


def test_chats_in_a_folder_that_is_read_only_are_listed_and_read(
    store: ChatStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = left_chat(tmp_path, "why?")
    store.rename(name, "\ud800")
    store.rename(name, "")

    def read_only(*_: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(ChatStore, "_connected", read_only)
    assert titles(store) == ["why?"]
    assert found(store, "why") == ["why?"]
    chat = Headless(tmp_path, store.read(name))
    chat.ask("and now?")
    assert len(chat.texts) == 4
    (said,) = chat.said
    assert "unable to open database file" in said


def unusable(kind: str, file: Path) -> None:
    if kind == "noise":
        file.write_bytes(random.Random(1).randbytes(20_000))
    elif kind == "pages":
        raw = file.read_bytes()
        file.write_bytes(raw[:100] + random.Random(2).randbytes(len(raw) - 100))
    elif kind == "newer":
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
    else:
        file.unlink()
        with sqlite3.connect(file) as db:
            db.execute("CREATE TABLE mine (a)")
        db.close()


@pytest.mark.parametrize("kind", ["noise", "pages", "newer", "foreign"])
def test_a_file_that_cannot_be_used_is_moved_aside_with_a_sentence(
    store: ChatStore, tmp_path: Path, kind: str
) -> None:
    left_chat(tmp_path, "why?")
    unusable(kind, store.file)
    before = store.file.read_bytes()
    said: list[str] = []
    store.say = said.append
    assert store.listed() == []
    assert store.listed() == []
    (aside,) = tmp_path.glob("chats.*-*.sqlite3")
    assert aside.read_bytes() == before
    (sentence,) = said
    assert aside.name in sentence
    assert not [*tmp_path.glob("*.lock")]
    left_chat(tmp_path, "and now?")
    assert titles(store) == ["and now?"]


def test_an_index_that_is_damaged_is_made_anew(store: ChatStore, tmp_path: Path) -> None:
    name = left_chat(tmp_path, "why?")
    with store.opened() as db:
        db.execute("UPDATE words_data SET block = x'ffffffffffffffffffff' WHERE id > 10")
    said: list[str] = []
    store.say = said.append
    store.find("why")
    assert found(store, "why") == ["why?"]
    assert len(said) == 1
    assert titles(store) == ["why?"]
    chat = Home(tmp_path).open(name)
    chat.session.delete(1)
    chat.leave("typed")
    assert found(store, "why") == []


def test_a_chat_that_is_open_while_the_file_breaks_is_written_whole_to_the_next_one(
    store: ChatStore, tmp_path: Path
) -> None:
    chat = Headless(tmp_path)
    chat.ask("first")
    chat.ask("second")
    db = chat.session.recorder._db
    assert db is not None
    db.close()
    chat.session.recorder._db = None
    unusable("noise", store.file)
    chat.ask("third")
    chat.leave("typed")
    (saved,) = store.saved()
    assert story(saved.turns) == story(chat.session.turns)
    assert text_of(saved.unsent) == "typed"
    assert len([*tmp_path.glob("chats.aside-*")]) >= 1


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be deleted")
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_chat_that_is_open_while_the_file_is_deleted_is_written_whole_to_the_next_one(
    store: ChatStore, tmp_path: Path, is_replaced: bool
) -> None:
    chat = Headless(tmp_path)
    chat.ask("first")
    for file in tmp_path.glob("chats.sqlite3*"):
        if not file.name.endswith(".lock"):
            file.unlink()
    if is_replaced:
        left_chat(tmp_path, "another")
    chat.ask("second")
    assert story(store.read(chat.session.chat.name).turns) == story(chat.session.turns)
    chat.leave("typed")
    assert titles(store) == ["first", "another"][: 1 + is_replaced]


def test_turns_that_do_not_fit_the_tree_cost_no_others(store: ChatStore) -> None:
    name = write_chat(store, "why?", "so", "and?", "thus")
    with store.opened() as db:
        db.execute("UPDATE turn SET parent = 77 WHERE id = 3")
        db.execute("INSERT INTO turn VALUES (99, 1, 9, NULL, NULL, NULL, 'alone', '')")
    turns: Turns = store.read(name).turns
    assert [turn.text for turn in turns.path][:2] == ["why?", "so"]
