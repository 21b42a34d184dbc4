"""Chats on disk: one JSONL file each, written as the chat goes, so that nothing is lost.

The first line is the header (`type` "chat"), then one line per message (`type` "message"). While
a reply streams, its text is written in pieces (`type` "partial") that the whole message replaces;
what was typed and not sent is kept at the end (`type` "unsent"), and a message that could not be
answered is taken back (`type` "retracted"). Where the oldest turns have left the context, a line
says which turn it begins with (`type` "window").
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import msgspec


class ChatHeader(msgspec.Struct, frozen=True, kw_only=True, tag="chat"):
    """What the chat runs on. `created` is local time, ISO 8601."""

    created: str
    pair: str
    target: str
    draft: str | None = None


class MessageLine(msgspec.Struct, frozen=True, kw_only=True, tag="message", omit_defaults=True):
    """A whole message. The last three describe a reply."""

    role: str
    content: str
    finish: str | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None


class PartialLine(msgspec.Struct, frozen=True, kw_only=True, tag="partial"):
    """The next piece of a reply that is still being written."""

    text: str


class UnsentLine(msgspec.Struct, frozen=True, kw_only=True, tag="unsent"):
    """What stood in the prompt when the chat was left."""

    text: str


class RetractedLine(msgspec.Struct, frozen=True, kw_only=True, tag="retracted"):
    """The last message could not be answered and was taken back."""


class WindowLine(msgspec.Struct, frozen=True, kw_only=True, tag="window"):
    """The turns before this one, counted from 0, are not in the context from here on."""

    first_turn: int


Line = ChatHeader | MessageLine | PartialLine | UnsentLine | RetractedLine | WindowLine

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


@dataclass
class SavedChat:
    """A chat read back from its file."""

    file: Path
    header: ChatHeader
    messages: list[MessageLine] = field(default_factory=list)
    unsent: str = ""
    first_turn: int = 0
    """The oldest turn that was in the context."""

    @property
    def title(self) -> str:
        """The first line of what was asked first."""
        first = next((m.content for m in self.messages if m.role == "user"), self.unsent)
        return " ".join(first.split())


class ChatLog:
    """Appends to one chat's file. The file is made with the first line worth keeping.

    Every writing method raises OSError.
    """

    def __init__(self, file: Path, header: ChatHeader) -> None:
        self._file = file
        self._header = header
        self._stream: TextIO | None = None

    @property
    def file(self) -> Path:
        return self._file

    def message(self, line: MessageLine) -> None:
        self._append(line)

    def partial(self, text: str) -> None:
        """The next piece of the running reply."""
        self._append(PartialLine(text=text))

    def unsent(self, text: str) -> None:
        """What stands in the prompt while the chat is left."""
        self._append(UnsentLine(text=text))

    def retracted(self) -> None:
        """The last message is taken back."""
        self._append(RetractedLine())

    def window(self, first_turn: int) -> None:
        """The context begins with this turn now."""
        self._append(WindowLine(first_turn=first_turn))

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _append(self, line: Line) -> None:
        if self._stream is None:
            self._stream = self._open()
        self._stream.write(_encoder.encode(line).decode() + "\n")
        self._stream.flush()

    def _open(self) -> TextIO:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        stream = self._file.open("a+", encoding="utf-8")
        if stream.tell() == 0:
            stream.write(_encoder.encode(self._header).decode() + "\n")
        elif not _ends_with_newline(self._file):
            stream.write("\n")
        return stream


def new_log(directory: Path, pair: str, target: Path, draft: Path | None) -> ChatLog:
    """The log of a new chat, named after the present moment."""
    now = datetime.datetime.now().astimezone()
    header = ChatHeader(
        created=now.isoformat(timespec="seconds"),
        pair=pair,
        target=str(target),
        draft=str(draft) if draft else None,
    )
    return ChatLog(directory / f"{now:%Y-%m-%d_%H%M%S.%f}.jsonl", header)


def reopened_log(chat: SavedChat) -> ChatLog:
    """The log of a chat that goes on."""
    return ChatLog(chat.file, chat.header)


def read_chat(file: Path) -> SavedChat:
    """Read a chat. Lines that cannot be read (a crash cut one short) are passed over.

    Raises ValueError where the header cannot be read, and OSError.
    """
    lines = _lines(file)
    header = next(lines, None)
    if not isinstance(header, ChatHeader):
        raise ValueError(f"{file} does not begin like a chat")
    chat = SavedChat(file, header)
    partial = ""
    for line in lines:
        if isinstance(line, PartialLine):
            partial += line.text
        elif isinstance(line, MessageLine):
            if line.role == "user":
                _keep_partial(chat, partial)
            chat.messages.append(line)
            partial = chat.unsent = ""
        elif isinstance(line, UnsentLine):
            chat.unsent = line.text
        elif isinstance(line, WindowLine):
            chat.first_turn = line.first_turn
        elif isinstance(line, RetractedLine) and chat.messages:
            chat.unsent = chat.messages.pop().content
    _keep_partial(chat, partial)
    return chat


def saved_chats(directory: Path) -> list[SavedChat]:
    """Every chat with a message or unsent text, latest first. Files that are none are left out."""
    chats = []
    for file in sorted(directory.glob("*.jsonl"), reverse=True):
        try:
            chat = read_chat(file)
        except (OSError, ValueError):
            continue
        if chat.messages or chat.unsent:
            chats.append(chat)
    return chats


def _lines(file: Path) -> Iterator[Line]:
    with file.open("rb") as stream:
        for raw in stream:
            try:
                yield _decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue


def _keep_partial(chat: SavedChat, partial: str) -> None:
    if partial:
        chat.messages.append(MessageLine(role="assistant", content=partial, finish="lost"))


def _ends_with_newline(file: Path) -> bool:
    with file.open("rb") as stream:
        stream.seek(-1, 2)
        return stream.read(1) == b"\n"
