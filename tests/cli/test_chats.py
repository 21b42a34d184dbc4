"""`eaglechat chats` and `eaglechat export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eaglechat import paths
from eaglechat.chat.store import ChatStore
from eaglechat.cli import main
from tests.chat.headless import left_chat

Captured = pytest.CaptureFixture[str]


def store() -> ChatStore:
    return ChatStore(paths.chats_file())


def used_chat(question: str, used: float) -> str:
    name = left_chat(paths.data_dir(), question)
    with store().opened() as db:
        db.execute("UPDATE chat SET used = ? WHERE name = ?", (used, name))
    return name


@pytest.fixture
def chats() -> list[str]:
    return [used_chat("What is a steam engine?", 1e9), used_chat("What is a haiku?", 2e9)]


def test_chats_are_listed_pinned_ones_first(chats: list[str], capsys: Captured) -> None:
    assert main(["chats"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"  {chats[1]}  2033-05-1")
    assert first.endswith("What is a haiku?")
    store().pin(chats[0], True)
    store().rename(chats[0], "Steam")
    assert main(["chats"]) == 0
    first, _ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"* {chats[0]}")
    assert first.endswith("Steam")
    assert second.endswith("What is a steam engine?")


def test_what_is_found_is_printed_with_the_words_around_it(
    chats: list[str], capsys: Captured
) -> None:
    assert main(["chats", "--find", "steam"]) == 0
    title, chat, passage = capsys.readouterr().out.splitlines()
    assert title.strip().startswith(chats[0])
    assert chat.strip() == f"{chats[0]}  What is a steam engine?"
    assert passage.strip() == "What is a steam engine?"
    assert main(["chats", "--find", "zeppelin"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "eaglechat: nothing found\n")


def test_json_of_chats_and_passages(chats: list[str], capsys: Captured) -> None:
    assert main(["chats", "--json", "--find", '"steam engine"']) == 0
    document = json.loads(capsys.readouterr().out)
    (chat,), (passage,) = document["chats"], document["passages"]
    assert (chat["name"], chat["messages"]) == (chats[0], 2)
    assert passage["chat"] == chats[0]
    ((start, stop),) = passage["marks"]
    assert passage["text"][start:stop] == "steam engine"
    assert main(["chats", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["chats"]) == 2


def test_what_a_model_wrote_does_nothing_to_the_terminal(
    chats: list[str], capsys: Captured
) -> None:
    store().rename(chats[0], "red \x1b[31malert")
    assert main(["chats"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("named", ["last", "name", "beginning", "title"])
def test_a_chat_is_exported_by_whatever_names_it(
    chats: list[str], capfdbinary: pytest.CaptureFixture[bytes], named: str
) -> None:
    name = chats[1]
    names = {"name": name, "beginning": name[:-1], "title": "what is a HAIKU?", "last": "last"}
    assert main(["export", names[named]]) == 0
    assert capfdbinary.readouterr().out.startswith(b"# What is a haiku?\n")


@pytest.mark.parametrize("format", ["markdown", "json", "html"])
def test_a_chat_is_exported_to_a_file(chats: list[str], tmp_path: Path, format: str) -> None:
    out = tmp_path / "new" / "chat.out"
    assert main(["export", "last", "--format", format, "-o", str(out)]) == 0
    text = out.read_text("utf-8")
    assert "What is a haiku?" in text
    if format == "json":
        assert json.loads(text)["title"] == "What is a haiku?"


def test_what_cannot_be_exported_is_said(
    chats: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert main(["export", "no such"]) == 1
    assert "there is no chat 'no such'" in capsys.readouterr().err
    assert main(["export", "20"]) == 1
    assert "may be 2 chats" in capsys.readouterr().err
    assert main(["export", "last", "-o", str(tmp_path)]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_without_chats_it_is_said(capsys: Captured) -> None:
    assert main(["chats"]) == 0
    assert "no chats in" in capsys.readouterr().err
    assert main(["export", "last"]) == 1
