"""What a chat is called, and whether it is pinned: lines at the end of its file."""

from __future__ import annotations

import os
from pathlib import Path

from eaglechat.chat.conversation.turns import Turns
from eaglechat.chat.history import lines
from eaglechat.chat.history.listing import title_of
from eaglechat.chat.history.log import ChatLog
from eaglechat.chat.history.reading import SavedChat, read_chat
from eaglechat.chat.writing.parts import shown


class ChatInUseError(OSError):
    """Another program writes to the chat."""

    def __init__(self) -> None:
        super().__init__("it is open in another eaglechat; do it there")


def summary_of(turns: Turns, unsent: str, title: str, pinned: bool) -> lines.SummaryLine:
    """What the list says of a chat with these turns; `title` is what the user called it."""
    path = turns.path
    name = title or title_of(shown(path[0].parts) if path else unsent)
    return lines.SummaryLine(title=name, messages=len(path), pinned=pinned)


def rename(file: Path, title: str) -> None:
    """Call a chat something else; its first question again where the title is empty.

    Raises ChatInUseError, OSError, and ValueError for what is no chat.
    """
    chat = read_chat(file)
    chat.title = title_of(title)
    _annotate(chat, lines.TitleLine(title=chat.title))


def pin(file: Path, pinned: bool) -> None:
    """Put a chat at the top of the list, or back among the others. Raises as `rename` does."""
    chat = read_chat(file)
    chat.pinned = pinned
    _annotate(chat, lines.PinnedLine(pinned=pinned))


def check_free(file: Path) -> None:
    """Raises ChatInUseError where another program writes to a chat, and OSError."""
    _taken(file, []).close()


def _annotate(chat: SavedChat, line: lines.Line) -> None:
    """Add a line without the chat counting as used."""
    before = chat.file.stat()
    problems: list[str] = []
    log = _taken(chat.file, problems)
    log.add(line, summary_of(chat.turns, chat.unsent, chat.title, chat.pinned))
    log.close()
    if problems:
        raise OSError(problems[0])
    os.utime(chat.file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _taken(file: Path, problems: list[str]) -> ChatLog:
    file.stat()
    log = ChatLog(file, problems.append)
    if not log.open():
        raise ChatInUseError
    return log
