"""The list of chats, without reading them whole: what a chat is stands at both ends of its file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from eaglechat.chat.history import lines

_HEAD, _TAIL = 4096, 8192
_LONGEST_TITLE = 160
_SUMMARY = b'\n{"type":"summary"'
_MESSAGES = (b'\n{"type":"message"', b'\n{"type":"question"', b'\n{"type":"reply"')
_TAKEN_BACK = b'\n{"type":"retracted"'


@dataclass(frozen=True)
class ChatSummary:
    """A row of the list. `problem` says why a file cannot be read, if so."""

    file: Path
    used: float
    """When something was last written to it, in seconds since 1970."""
    header: lines.ChatHeader | None = None
    title: str = ""
    messages: int = 0
    problem: str | None = None


def title_of(text: str) -> str:
    """A text as a title: one line of it, and not too long a one."""
    return " ".join(text[: 2 * _LONGEST_TITLE].split())[:_LONGEST_TITLE]


def list_chats(directory: Path) -> list[ChatSummary]:
    """Every chat in which something was said or typed, and every file that cannot be read;
    what was used last comes first."""
    files = [entry for entry in _entries(directory) if entry.name.endswith(".jsonl")]
    summaries = [summarise(Path(entry.path)) for entry in files]
    shown = [chat for chat in summaries if chat.problem or chat.title or chat.messages]
    return sorted(shown, key=lambda chat: (chat.used, chat.file.name), reverse=True)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [*entries]
    except OSError:
        return []


def summarise(file: Path) -> ChatSummary:
    """What the list shows of a chat's file."""
    used = 0.0
    try:
        with file.open("rb") as stream:
            used = os.fstat(stream.fileno()).st_mtime
            return _summarise(file, used, stream)
    except OSError as error:
        return ChatSummary(file, used, problem=error.strerror or str(error))


def _summarise(file: Path, used: float, stream: BinaryIO) -> ChatSummary:
    head = stream.read(_HEAD)
    header = lines.decode(head.partition(b"\n")[0])
    if not isinstance(header, lines.ChatHeader):
        problem = "it does not begin like a chat" if head else "it is empty"
        return ChatSummary(file, used, problem=problem)
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _TAIL))
    summary = _last_summary(stream.read())
    if summary is None:
        stream.seek(0)
        whole = stream.read()
        summary = _last_summary(whole) or _counted(whole)
    return ChatSummary(file, used, header, summary.title, summary.messages)


def _last_summary(data: bytes) -> lines.SummaryLine | None:
    start = data.rfind(_SUMMARY)
    if start < 0:
        return None
    line = lines.decode(data[start + 1 :].partition(b"\n")[0])
    return line if isinstance(line, lines.SummaryLine) else None


def _counted(data: bytes) -> lines.SummaryLine:
    """The summary of a file without one: of version 1, or cut off before the first reply's end."""
    title = ""
    for raw in data.split(b"\n"):
        line = lines.decode(raw)
        if isinstance(line, lines.QuestionLine):
            title = title_of("".join(part.text for part in line.parts))
        elif isinstance(line, lines.MessageLine | lines.UnsentLine):
            title = title_of(line.content if isinstance(line, lines.MessageLine) else line.text)
        if title:
            break
    taken_back = data.count(_TAKEN_BACK)
    return lines.SummaryLine(title=title, messages=sum(map(data.count, _MESSAGES)) - taken_back)
