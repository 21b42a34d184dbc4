"""The list of chats. Only both ends of a file are read: its header and its last summary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from eaglechat.chat.conversation.turns import Turns
from eaglechat.chat.history import lines
from eaglechat.chat.writing.question import shown

HEAD_BYTES, TAIL_BYTES = 4096, 8192
"""Bytes read at the beginning and at the end of a file."""
_LONGEST_TITLE = 160
READ_AT_ONCE = 250
"""Files that are read before the list is shown with them."""
_SUMMARY = b'\n{"type":"summary"'
_MESSAGES = (b'\n{"type":"question"', b'\n{"type":"reply"')
_NO_STAMP = (0, 0)


@dataclass(frozen=True)
class ChatSummary:
    """A row of the list. `problem` says why the file cannot be read, a text in the words of the
    operating system; None if it can."""

    file: Path
    stamp: tuple[int, int] = _NO_STAMP
    """Size in bytes, and time of the last change in nanoseconds since 1970."""
    header: lines.ChatHeader | None = None
    title: str = ""
    messages: int = 0
    pinned: bool = False
    problem: lines.NotAChat | lines.OtherFormat | str | None = None

    @property
    def used(self) -> float:
        """Time of the last change, in seconds since 1970."""
        return self.stamp[1] / 1e9

    @property
    def is_shown(self) -> bool:
        """False for a chat in which nothing was said or typed."""
        return bool(self.problem or self.title or self.messages)


def title_of(text: str) -> str:
    """A text as a title: one line, cut to `_LONGEST_TITLE` characters."""
    return " ".join(text[: 2 * _LONGEST_TITLE].split())[:_LONGEST_TITLE]


def summary_line(turns: Turns, unsent: str, title: str, pinned: bool) -> lines.SummaryLine:
    """What the list shows of a chat with these turns; `title` is the user's, empty for none."""
    path = turns.path
    name = title or title_of(shown(path[0].parts) if path else unsent)
    return lines.SummaryLine(title=name, messages=len(path), pinned=pinned)


def list_chats(directory: Path) -> Iterator[list[ChatSummary]]:
    """The list of chats, longer each time; the last one is complete. It has every chat in which
    something was said or typed, and every file that cannot be read: pinned ones first, then those
    used last."""
    there = stamps(directory)
    rows: list[ChatSummary] = []
    for number, name in enumerate(sorted(there, reverse=True)):
        if number % READ_AT_ONCE == 0 and number:
            yield _in_order(rows)
        rows.append(summarise(directory / name, there[name]))
    yield _in_order(rows)


def latest_chats(directory: Path, count: int) -> list[ChatSummary]:
    """The chats used last in which something was said or typed. Few other files are opened."""
    there = stamps(directory)
    names = sorted(there, key=lambda name: there[name][1], reverse=True)
    chats = (summarise(directory / name, there[name]) for name in names)
    return [*islice((one for one in chats if one.is_shown and not one.problem), count)]


def _in_order(summaries: Iterable[ChatSummary]) -> list[ChatSummary]:
    shown_ones = (chat for chat in summaries if chat.is_shown)
    return sorted(
        shown_ones, key=lambda chat: (chat.pinned, chat.used, chat.file.name), reverse=True
    )


def stamps(directory: Path) -> dict[str, tuple[int, int]]:
    """The stamp of each chat's file, by name, as in `ChatSummary`. Names that are not text are left
    out."""
    found: dict[str, tuple[int, int]] = {}
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(".jsonl") and name == name.encode("utf-8", "replace").decode():
                found[name] = _NO_STAMP
                with suppress(OSError):
                    stat = entry.stat()
                    found[name] = stat.st_size, stat.st_mtime_ns
    return found


def count_of(directory: Path, is_wanted: Callable[[str], bool]) -> int:
    """How many chats began with a target or a draft whose path is wanted."""
    rows = (summarise(directory / name, stamp).header for name, stamp in stamps(directory).items())
    return sum(
        any(is_wanted(file) for file in (header.target, header.draft) if file)
        for header in rows
        if header is not None and not header.server
    )


def summarise(file: Path, stamp: tuple[int, int] = _NO_STAMP) -> ChatSummary:
    """What the list shows of a chat's file; `stamp` is used if it cannot be opened."""
    try:
        with file.open("rb") as stream:
            stat = os.fstat(stream.fileno())
            stamp = stat.st_size, stat.st_mtime_ns
            header = lines.header_of(stream.read(HEAD_BYTES))
            stream.seek(max(0, stat.st_size - TAIL_BYTES))
            summary = _last_summary(stream.read())
            if summary is None:
                stream.seek(0)
                whole = stream.read()
                summary = _last_summary(whole) or _counted(whole)
    except OSError as error:
        return ChatSummary(file, stamp, problem=error.strerror or str(error))
    except lines.ChatFormatError as error:
        return ChatSummary(file, stamp, problem=error.problem)
    return ChatSummary(file, stamp, header, summary.title, summary.messages, summary.pinned)


def _last_summary(data: bytes) -> lines.SummaryLine | None:
    start = data.rfind(_SUMMARY)
    if start < 0:
        return None
    line = lines.decode(data[start + 1 :].partition(b"\n")[0])
    return line if isinstance(line, lines.SummaryLine) else None


def _counted(data: bytes) -> lines.SummaryLine:
    """The summary of a file that has none, because it was cut off before its first reply ended."""
    title = ""
    for raw in data.split(b"\n"):
        line = lines.decode(raw)
        if isinstance(line, lines.QuestionLine):
            title = title_of("".join(part.text for part in line.parts))
        elif isinstance(line, lines.UnsentLine):
            title = title_of(line.text)
        if title:
            break
    return lines.SummaryLine(title=title, messages=sum(map(data.count, _MESSAGES)))
