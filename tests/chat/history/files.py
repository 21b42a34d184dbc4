"""Files of chats for tests, and logs that complain into a list."""

from __future__ import annotations

from pathlib import Path

from eaglechat.chat.history import lines
from eaglechat.chat.history.log import ChatLog, new_log, resumed_log
from eaglechat.chat.history.packing import pack
from eaglechat.chat.history.saved_chat import SavedChat
from eaglechat.chat.recording import TurnPart
from eaglechat.hub.local.pair import Pair
from tests.chat.records import answering

PAIR = Pair("pair", Path("/t.gguf"), Path("/d.gguf"), "files")


class Complaints(list[OSError]):
    """Why a log could not write."""

    def __call__(self, file: Path, why: OSError) -> None:
        self.append(why)


def fresh(directory: Path, complaints: Complaints | None = None) -> ChatLog:
    return new_log(directory, PAIR, complaints if complaints is not None else Complaints())


def resumed(chat: SavedChat, complaints: Complaints | None = None) -> ChatLog:
    return resumed_log(chat, complaints if complaints is not None else Complaints())


def write_chat(file: Path, *said: str) -> Path:
    """A chat of questions and replies in turn, without the summary that the app writes."""
    header = lines.ChatHeader(
        created="2026-11-21T10:00:00+00:00",
        pair="pair",
        target="/t.gguf",
        draft="/d.gguf",
        version=lines.VERSION,
    )
    written: list[lines.Line] = [header]
    for id, text in enumerate(said, 1):
        if id % 2:
            parts = (TurnPart(text),)
            written.append(lines.QuestionLine(id=id, parent=id - 1 or None, parts=parts))
        else:
            data = pack([*answering(text).rounds])
            written.append(lines.ReplyLine(id=id, parent=id - 1))
            written.append(lines.RoundsLine(of=id, text=text, data=data))
            written.append(lines.EndLine(of=id))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(map(lines.encode, written)))
    return file
