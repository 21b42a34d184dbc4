"""The file of a chat that is open: full disks, other programs, and what a kill leaves."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eaglechat.chat.conversation.turns import Reply, Turns
from eaglechat.chat.history import log as log_module
from eaglechat.chat.history.lines import QuestionLine, ReplyLine, RoundsLine
from eaglechat.chat.history.log import ChatLog
from eaglechat.chat.history.packing import pack
from eaglechat.chat.history.recorder import ChatRecorder
from eaglechat.chat.history.saved_chat import read_chat, saved_chats
from eaglechat.chat.recording import Recording, Terms, TurnPart
from tests.chat.headless import Headless
from tests.chat.history.files import Complaints, fresh, resumed
from tests.chat.records import end_of, round_of

needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


def question(id: int, text: str) -> QuestionLine:
    return QuestionLine(id=id, parts=(TurnPart(text),))


def reply_to(id: int) -> tuple[ReplyLine, RoundsLine]:
    return ReplyLine(id=id + 1, parent=id), RoundsLine(
        of=id + 1, text=" t1", data=pack([round_of(1)])
    )


def test_no_file_before_there_is_something_to_keep(tmp_path: Path) -> None:
    log = fresh(tmp_path / "chats")
    log.try_again()
    log.close()
    assert not (tmp_path / "chats").exists()


@needs_dev_full
def test_a_full_disk_is_said_once_and_the_chat_can_be_left() -> None:
    complaints = Complaints()
    log = ChatLog(Path("/dev/full"), complaints, beginning=b"{}\n")
    log.add(question(1, "why?"))
    log.add(question(2, "why?"))
    log.try_again()
    log.close()
    assert len(complaints) == 1
    assert complaints[0].errno == errno.ENOSPC


class SmallDisk(io.FileIO):
    """A file on a disk that takes `room` more bytes, then none until there is room again."""

    room = 10_000

    def write(self, data: bytearray) -> int:
        taken = bytes(data[: SmallDisk.room])
        if data and not taken:
            raise OSError(28, "No space left on device")
        SmallDisk.room -= len(taken)
        return super().write(taken)

    def close(self) -> None:
        super().close()
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("room", [0, 1, 30, 77])
def test_what_a_full_disk_did_not_take_goes_on_at_the_very_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr("io.FileIO", SmallDisk)
    monkeypatch.setattr(SmallDisk, "room", 10_000)
    complaints = Complaints()
    log = fresh(tmp_path, complaints)
    log.add(question(1, "first"), *reply_to(1))
    SmallDisk.room = room
    log.add(QuestionLine(id=3, parent=2, parts=(TurnPart("second"),)), *reply_to(3))
    log.try_again()
    assert len(complaints) == 1
    assert [t.text for t in read_chat(log.file).turns.path][:2] == ["first", " t1"]
    SmallDisk.room = 10_000
    log.try_again()
    log.close()
    assert [t.text for t in read_chat(log.file).turns.path] == ["first", " t1", "second", " t1"]
    assert len(log.file.read_bytes().splitlines()) == 7


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "chats").write_text("a file in its place")
    chat = Headless(tmp_path)
    chat.ask("why?")
    chat.session.save("typed")
    chat.session.leave("typed")
    assert len(chat.said) == 1
    assert "cannot be saved" in chat.said[0]


def test_a_second_program_is_told_and_writes_to_a_copy(tmp_path: Path) -> None:
    first = Headless(tmp_path)
    first.ask("mine")
    (saved,) = saved_chats(tmp_path / "chats")
    second = Headless(tmp_path, saved)
    assert any("open in another eaglechat" in text for text in second.shown)
    first.ask("more of mine")
    second.ask("yours")
    first.session.leave("")
    second.session.leave("")
    latest, original = saved_chats(tmp_path / "chats")
    assert [t.text for t in original.turns.path][::2] == ["mine", "more of mine"]
    assert [t.text for t in latest.turns.path][::2] == ["mine", "yours"]
    assert latest.file != original.file


def test_a_second_program_that_only_looks_leaves_no_copy(tmp_path: Path) -> None:
    first = Headless(tmp_path)
    first.ask("mine")
    (saved,) = saved_chats(tmp_path / "chats")
    Headless(tmp_path, saved).session.leave("")
    assert len([*(tmp_path / "chats").iterdir()]) == 1


def test_a_chat_that_was_left_is_free_again(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    log.add(question(1, "why?"), *reply_to(1))
    chat = read_chat(log.file)
    assert resumed(chat).is_copy
    log.close()
    assert not resumed(chat).is_copy


def test_a_file_system_without_locks_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    if sys.platform == "win32":
        monkeypatch.setattr(log_module.msvcrt, "locking", no_locks)
    else:
        monkeypatch.setattr(log_module.fcntl, "flock", no_locks)
    log = fresh(tmp_path)
    log.add(question(1, "why?"), *reply_to(1))
    assert not resumed(read_chat(log.file)).is_copy


def test_what_was_typed_and_deleted_again_leaves_no_file(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.session.save("a thought")
    (file,) = (tmp_path / "chats").iterdir()
    assert read_chat(file).unsent_text == "a thought"
    chat.session.save("")
    chat.session.leave("")
    assert not file.exists()


def test_a_damaged_chat_is_never_deleted(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    log.add(question(1, "why?"))
    log.close()
    header = log.file.read_bytes().splitlines(keepends=True)[0]
    log.file.write_bytes(header + b"nothing that can be read\n")
    Headless(tmp_path, read_chat(log.file)).session.leave("")
    assert log.file.exists()


def test_a_long_prompt_is_kept_once_it_was_left_alone(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.session.save("x" * 5000)
    assert not (tmp_path / "chats").exists()
    chat.session.save("x" * 5000)
    chat.session.save("x" * 5000)
    (file,) = (tmp_path / "chats").iterdir()
    assert read_chat(file).unsent_text == "x" * 5000
    assert file.stat().st_size < 6000


WRITER = """
import sys
from pathlib import Path
from tests.chat.headless import Headless

chat = Headless(Path(sys.argv[1]))
chat.engine.reply = " ".join(map(str, range(10_000)))
chat.session.ask("count")
while True:
    seen = len(chat.session.shown.rounds)
    chat.pump_until(lambda: len(chat.session.shown.rounds) > seen)
    chat.session.save("typed")
    print(len(chat.session.shown.rounds), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("lines_before", [1, 7, 40])
def test_a_kill_loses_nothing_that_was_saved(tmp_path: Path, lines_before: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    saved_rounds = 0
    for _ in range(lines_before):
        saved_rounds = int(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    (saved,) = saved_chats(tmp_path / "chats")
    reply = saved.turns.last_reply
    assert reply is not None
    rounds = reply.recording.rounds
    assert len(rounds) >= saved_rounds
    assert reply.text == "".join(r.text for r in rounds)
    assert reply.text.startswith("0 1 2")
    assert saved.unsent_text == "typed"
    chat = Headless(tmp_path, saved)
    assert not any("another eaglechat" in text for text in chat.shown)
    chat.ask("go on")
    chat.session.leave("")
    (again,) = saved_chats(tmp_path / "chats")
    assert [t.text for t in again.turns.path][:3] == ["count", reply.text, "go on"]


def test_a_reply_that_is_settled_without_a_round_is_kept(tmp_path: Path) -> None:
    turns, log = Turns(), fresh(tmp_path)
    recorder = ChatRecorder(log, turns, None)
    asked = turns.ask([TurnPart("why?")])
    reply = turns.answer(asked.id, Recording(Terms()))
    recorder.asked(asked)
    recorder.began(reply)
    reply.recording.settle(())
    reply.recording.finish(end_of(0, 0.0), None)
    recorder.ended(reply)
    recorder.left("")
    (kept,) = [turn for turn in read_chat(log.file).turns if isinstance(turn, Reply)]
    assert (kept.text, kept.recording.end) == ("", reply.recording.end)
