"""Chats on disk survive what happens to programs and disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat.chat.history import (
    ChatLog,
    MessageLine,
    new_log,
    read_chat,
    reopened_log,
    saved_chats,
)

USER = MessageLine(role="user", content="why\u2028?")


def test_a_chat_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    log = new_log(tmp_path, "pair", Path("/t.gguf"), Path("/d.gguf"))
    reply = MessageLine(role="assistant", content="so", finish="stop", tokens=1)
    log.message(USER)
    log.partial("s")
    log.message(reply)
    log.unsent("and then")
    chat = read_chat(log.file)
    assert chat.messages == [USER, reply]
    assert (chat.unsent, chat.header.target, chat.header.draft) == (
        "and then",
        "/t.gguf",
        "/d.gguf",
    )


def test_the_latest_beginning_of_the_context_counts(tmp_path: Path) -> None:
    log = new_log(tmp_path, "pair", Path("/t.gguf"), None)
    assert read_chat(_written(log, USER)).first_turn == 0
    log.window(3)
    log.message(USER)
    log.window(5)
    chat = read_chat(log.file)
    assert (chat.first_turn, chat.messages) == (5, [USER, USER])


def _written(log: ChatLog, line: MessageLine) -> Path:
    log.message(line)
    return log.file


def test_no_file_before_there_is_something_to_keep(tmp_path: Path) -> None:
    log = new_log(tmp_path / "chats", "pair", Path("/t.gguf"), None)
    log.close()
    assert not (tmp_path / "chats").exists()


def test_a_reply_cut_off_by_a_crash_is_kept_as_far_as_it_went(tmp_path: Path) -> None:
    log = new_log(tmp_path, "pair", Path("/t.gguf"), None)
    log.message(USER)
    log.partial("half ")
    log.partial("a rep")
    with log.file.open("a") as file:
        file.write('{"type":"partial","te')
    chat = read_chat(log.file)
    assert chat.messages[1] == MessageLine(role="assistant", content="half a rep", finish="lost")

    again = reopened_log(chat)
    again.message(USER)
    assert [line.role for line in read_chat(log.file).messages] == ["user", "assistant", "user"]


def test_a_retracted_message_is_unsent(tmp_path: Path) -> None:
    log = new_log(tmp_path, "pair", Path("/t.gguf"), None)
    log.message(USER)
    log.retracted()
    chat = read_chat(log.file)
    assert (chat.messages, chat.unsent) == ([], USER.content)


def test_files_that_are_no_chats_are_left_out_of_the_list(tmp_path: Path) -> None:
    log = new_log(tmp_path, "pair", Path("/t.gguf"), None)
    log.message(USER)
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe nothing")
    (tmp_path / "y.jsonl").write_text("")
    assert [chat.file for chat in saved_chats(tmp_path)] == [log.file]
    with pytest.raises(ValueError, match=r"y\.jsonl"):
        read_chat(tmp_path / "y.jsonl")
