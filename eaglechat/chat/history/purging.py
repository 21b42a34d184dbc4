"""What a chat no longer holds goes from its file once nothing can bring it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eaglechat.chat.history import lines
from eaglechat.chat.history.listing import summary_line
from eaglechat.chat.history.saved_chat import SavedChat, chat_in
from eaglechat.chat.writing.question import QuestionParts, shown, text_of


def purged(file: Path, raw: bytes) -> bytes:
    """The content of a chat's file without deleted turns, and without what was typed and removed.
    Damaged lines stay. Raises ChatFormatError."""
    chat = chat_in(file, raw)
    header, *others = raw.split(b"\n")
    kept = [header, *(one for one in others if one and _is_kept(lines.decode(one), chat))]
    ends = [lines.encode(one).rstrip(b"\n") for one in _ends(chat)]
    content = b"\n".join([*kept, *ends, b""])
    if _path(chat_in(file, content)) != _path(chat):
        chosen = lines.encode(lines.ChosenLine(turn=chat.turns.path[-1].id)).rstrip(b"\n")
        content = b"\n".join([*kept, chosen, *ends, b""])
    return content if _path(chat_in(file, content)) == _path(chat) else raw


def unsent_line(unsent: QuestionParts) -> lines.UnsentLine:
    is_typed = all(part.source == "typed" for part in unsent)
    return lines.UnsentLine(text=text_of(unsent), parts=() if is_typed else unsent)


def _is_kept(line: lines.Line | None, chat: SavedChat) -> bool:
    match line:
        case lines.QuestionLine() | lines.ReplyLine():
            return line.id in chat.turns
        case lines.RoundsLine() | lines.GoesOnLine() | lines.EndLine():
            return line.of in chat.turns
        case lines.ChosenLine():
            return line.turn in chat.turns
        case lines.TermsLine():
            return bool(chat.turns)
        case None:
            return True
    return False


def _ends(chat: SavedChat) -> Iterator[lines.Line]:
    """What is said of the whole chat: the last line of each kind counts."""
    if chat.first_question is not None:
        yield lines.WindowLine(question=chat.first_question)
    if chat.role and chat.turns:
        yield lines.RoleLine(role=chat.role)
    if chat.title:
        yield lines.TitleLine(title=chat.title)
    if chat.pinned:
        yield lines.PinnedLine(pinned=True)
    if chat.unsent:
        yield unsent_line(chat.unsent)
    yield summary_line(chat.turns, shown(chat.unsent), chat.title, chat.pinned)


def _path(chat: SavedChat) -> tuple[object, ...]:
    """What must be the same in a purged file."""
    ids = sorted(turn.id for turn in chat.turns)
    return ids, [turn.id for turn in chat.turns.path], chat.unsent, chat.title
