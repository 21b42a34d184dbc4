"""Chats of earlier versions are taken over once and whole, and their folder stays."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eaglechat.chat.older import take_over
from eaglechat.chat.recorder import ChatRecorder
from eaglechat.chat.saved_chat import SavedChat
from eaglechat.chat.store import KEPT_DAYS
from eaglechat.chat.turns import Reply, Turn
from tests.chat.home import Home

OLDER = Path(__file__).with_name("older")
"""Written by an earlier version, which also says what it read of them."""
EXPECTED: dict[str, dict[str, Any]] = json.loads((OLDER / "expected.json").read_text())


@pytest.fixture
def older(tmp_path: Path) -> Home:
    shutil.copytree(OLDER, tmp_path / "chats", ignore=shutil.ignore_patterns("*.json"))
    return Home(tmp_path)


def about(chat: SavedChat) -> dict[str, Any]:
    path = {turn.id for turn in chat.turns.path}
    read = {
        "title": chat.title,
        "pinned": chat.pinned,
        "unsent": msgspec.to_builtins(chat.unsent),
        "pair": chat.header.pair,
        "turns": [{**_about(turn), "chosen": turn.id in path} for turn in chat.turns],
    }
    # In JSON a tuple is a list.
    found: dict[str, Any] = json.loads(json.dumps(read))
    return found


def _about(turn: Turn) -> dict[str, Any]:
    said = {"id": turn.id, "parent": turn.parent, "text": turn.text, "reasoning": turn.reasoning}
    if not isinstance(turn, Reply):
        return said
    recording = turn.recording
    n_past, rounds = recording.n_past, recording.rounds
    return said | {
        "end": msgspec.to_builtins(recording.end),
        "n_rounds": len(rounds),
        "tokens": [
            [t.id, t.text, t.origin.value, t.drafter, t.part and t.part.value]
            for round_ in rounds
            for t in round_.tokens
        ],
        "drafted": [[d.id, d.text, d.parent, d.drafter] for r in rounds for d in r.drafted],
        "total_ms": [round_.timings.total_ms for round_ in rounds],
        "n_past": n_past,
    }


def test_all_of_a_chat_is_taken_over_with_the_damage_that_it_has(older: Home) -> None:
    said: list[str] = []
    older.store.say = said.append
    assert take_over(older.store) == 4
    assert {chat.name: about(chat) for chat in older.store.saved()} == EXPECTED
    assert "Took over 4 chats of an earlier version." in said[0]
    assert older.found("pondering")
    assert sorted(file.name for file in (OLDER.glob("*.jsonl"))) == sorted(
        file.name for file in (older.store.file.parent / "chats").iterdir()
    )
    assert take_over(older.store) == 0
    assert not [*older.store.file.parent.glob("*.lock")]


def test_what_was_done_to_a_chat_since_is_not_taken_over_again(older: Home) -> None:
    take_over(older.store)
    older.store.rename("branches", "another title")
    older.store.delete("killed")
    chat = older.open("comparison")
    chat.ask("more")
    chat.leave()
    assert take_over(older.store) == 0
    assert {name for name, *_ in older.rows()} == {"branches", "comparison", "unanswered"}
    assert older.store.read("branches").title == "another title"
    assert len(older.store.read("comparison").turns) == 4


def test_one_that_is_interrupted_goes_on(older: Home) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_over(older.store, interrupt)
    assert take_over(older.store) == 3
    assert {chat.name: about(chat) for chat in older.store.saved()} == EXPECTED


def test_one_that_is_killed_between_a_chat_and_its_mark_takes_nothing_over_twice(
    older: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    write = ChatRecorder.write

    def kill(recorder: ChatRecorder, db: sqlite3.Connection, owner: str) -> None:
        write(recorder, db, owner)
        raise KilledError

    monkeypatch.setattr(ChatRecorder, "write", kill)
    with pytest.raises(KilledError):
        take_over(older.store)
    monkeypatch.undo()
    take_over(older.store)
    assert {chat.name: about(chat) for chat in older.store.saved()} == EXPECTED


def test_what_is_no_chat_is_named_once_and_stays(older: Home) -> None:
    said: list[str] = []
    older.store.say = said.append
    folder = older.store.file.parent / "chats"
    contents = {
        "empty": b"",
        "noise": b"\xff\xfe nothing",
        "first": b'{"type":"chat","created":"","pair":"p","target":"t"}\n',
    }
    for name, content in contents.items():
        (folder / f"{name}.jsonl").write_bytes(content)
    (folder / "folder.jsonl").mkdir()
    take_over(older.store)
    assert "Took over 4 chats of an earlier version." in said[0]
    assert "empty.jsonl (it does not begin like a chat)" in said[0]
    assert "first.jsonl (its format is version 1)" in said[0]
    take_over(older.store)
    assert len(said) == 1
    assert all((folder / f"{name}.jsonl").read_bytes() == c for name, c in contents.items())


def test_deleted_chats_are_taken_over_as_such_and_their_files_go(older: Home) -> None:
    now = 1e9
    older.store.clock = lambda: now
    trash = older.store.file.parent / "trash"
    trash.mkdir()
    shutil.copy(OLDER / "comparison.jsonl", trash / f"{int(now * 1000)}.gone.jsonl")
    take_over(older.store)
    assert len(older.rows()) == 4
    assert not [*trash.iterdir()]
    assert older.store.restore() == "gone"
    older.store.delete("gone")
    now += KEPT_DAYS * 86400 + 1
    older.store.empty_trash()
    assert older.store.restore() is None


def test_without_older_chats_no_file_is_made(tmp_path: Path) -> None:
    store = Home(tmp_path).store
    assert take_over(store) == 0
    store.empty_trash()
    assert not [*tmp_path.iterdir()]
