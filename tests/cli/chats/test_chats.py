"""`eaglechat chats` and `eaglechat export`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from eaglechat import paths
from eaglechat.chat.history.folder import pin, rename
from eaglechat.cli import main
from tests.chat.headless import left_chat

Captured = pytest.CaptureFixture[str]


def used_chat(question: str, used: float) -> Path:
    file = left_chat(paths.data_dir(), question)
    os.utime(file, (used, used))
    return file


@pytest.fixture
def chats() -> list[Path]:
    return [used_chat("What is a steam engine?", 1e9), used_chat("What is a haiku?", 2e9)]


def test_chats_are_listed_pinned_ones_first(chats: list[Path], capsys: Captured) -> None:
    assert main(["chats"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"  {chats[1].stem}  2033-05-1")
    assert first.endswith("What is a haiku?")
    pin(chats[0], True)
    rename(chats[0], "Steam")
    assert main(["chats"]) == 0
    first, _ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"* {chats[0].stem}")
    assert first.endswith("Steam")
    assert second.endswith("What is a steam engine?")


def test_what_is_found_is_printed_with_the_words_around_it(
    chats: list[Path], capsys: Captured
) -> None:
    assert main(["chats", "--find", "steam"]) == 0
    title, chat, passage = capsys.readouterr().out.splitlines()
    assert title.strip().startswith(chats[0].stem)
    assert chat.strip() == f"{chats[0].stem}  What is a steam engine?"
    assert passage.strip() == "What is a steam engine?"
    assert main(["chats", "--find", "zeppelin"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "eaglechat: nothing found\n")


def test_json_of_chats_and_passages(chats: list[Path], capsys: Captured) -> None:
    assert main(["chats", "--json", "--find", '"steam engine"']) == 0
    document = json.loads(capsys.readouterr().out)
    (chat,), (passage,) = document["chats"], document["passages"]
    assert (chat["name"], chat["messages"], chat["problem"]) == (chats[0].stem, 2, None)
    assert passage["chat"] == chats[0].stem
    ((start, stop),) = passage["marks"]
    assert passage["text"][start:stop] == "steam engine"
    assert main(["chats", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["chats"]) == 2


def test_what_a_model_wrote_does_nothing_to_the_terminal(
    chats: list[Path], capsys: Captured
) -> None:
    rename(chats[0], "red \x1b[31malert")
    assert main(["chats"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("named", ["last", "stem", "beginning", "title", "file"])
def test_a_chat_is_exported_by_whatever_names_it(
    chats: list[Path], capfdbinary: pytest.CaptureFixture[bytes], named: str
) -> None:
    stem = chats[1].stem
    names = {"stem": stem, "beginning": stem[:-1], "title": "what is a HAIKU?"}
    names |= {"last": "last", "file": str(chats[1])}
    assert main(["export", names[named]]) == 0
    assert capfdbinary.readouterr().out.startswith(b"# What is a haiku?\n")


@pytest.mark.parametrize("format", ["markdown", "json", "html"])
def test_a_chat_is_exported_to_a_file(chats: list[Path], tmp_path: Path, format: str) -> None:
    out = tmp_path / "new" / "chat.out"
    assert main(["export", "last", "--format", format, "-o", str(out)]) == 0
    text = out.read_text("utf-8")
    assert "What is a haiku?" in text
    if format == "json":
        assert json.loads(text)["title"] == "What is a haiku?"


def test_what_cannot_be_exported_is_said(
    chats: list[Path], tmp_path: Path, capsys: Captured
) -> None:
    assert main(["export", "no such"]) == 1
    assert "there is no chat 'no such'" in capsys.readouterr().err
    assert main(["export", "20"]) == 1
    assert "may be 2 chats" in capsys.readouterr().err
    (tmp_path / "other.txt").write_text("no chat")
    assert main(["export", str(tmp_path / "other.txt")]) == 1
    assert "does not begin like a chat" in capsys.readouterr().err
    assert main(["export", "last", "-o", str(tmp_path)]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_without_chats_it_is_said(capsys: Captured) -> None:
    assert main(["chats"]) == 0
    assert "no chats in" in capsys.readouterr().err
    assert main(["export", "last"]) == 1
