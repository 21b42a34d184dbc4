"""The lines of a chat's file, one JSON object each.

The first is the header. A question is one line; a reply is a line when it begins, one with rounds
about every second, and one when it ends. Lines name the turn they belong to by its id, so that a
lost line costs no other. Chats of earlier versions may have lines of the type `comparison` and what
these wrote; they are skipped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated

import msgspec
from msgspec import Meta

from eaglechat.chat.recording import Terms, TurnPart
from eaglechat.wire.records import ReplyEnd
from eaglechat.wire.stats import SpeculationStats

VERSION = 2


_Count = Annotated[int, Meta(ge=0, le=2**53)]
"""Ids and counts of turns, small enough for every JSON reader."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class ChatHeader(_Line, frozen=True, kw_only=True, tag="chat"):
    """The models the chat began with. `created` is local time, ISO 8601."""

    created: str
    pair: str
    target: str
    draft: str | None = None
    version: int = 1
    """A header without a version is of version 1."""
    server: str = ""
    """Address of the server that ran the model, which `target` then names."""


class QuestionLine(_Line, frozen=True, kw_only=True, tag="question"):
    id: _Count
    parent: _Count | None = None
    parts: tuple[TurnPart, ...]


class TermsLine(_Line, frozen=True, kw_only=True, tag="terms"):
    """The terms of the replies that follow."""

    terms: Terms


class ReplyLine(_Line, frozen=True, kw_only=True, tag="reply"):
    """The beginning of a reply to the question `parent`."""

    id: _Count
    parent: _Count


class RoundsLine(_Line, frozen=True, kw_only=True, tag="rounds"):
    """What a reply wrote since its last such line. `data` is made by `packing.pack`."""

    of: _Count
    text: str = ""
    reasoning: str = ""
    data: str


class GoesOnLine(_Line, frozen=True, kw_only=True, tag="goes_on"):
    """A stopped reply continues: more rounds follow, and another end."""

    of: _Count


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """The end of a reply; without `end` it was cut off."""

    of: _Count
    end: ReplyEnd | None = None
    stats: SpeculationStats | None = None
    changed: tuple[str, ...] = ()
    speculation_stopped: str | None = None
    settled: str | None = None
    """All its rounds, packed, if they replace those of its other lines."""


class ChosenLine(_Line, frozen=True, kw_only=True, tag="chosen"):
    """This turn was chosen."""

    turn: _Count


class DeletedLine(_Line, frozen=True, kw_only=True, tag="deleted"):
    """This turn was deleted with all that follows it."""

    turn: _Count


class RestoredLine(_Line, frozen=True, kw_only=True, tag="restored"):
    """What was deleted with this turn was restored."""

    turn: _Count


class WindowLine(_Line, frozen=True, kw_only=True, tag="window"):
    """The context begins with this question; None: with the first one."""

    question: _Count | None = None


class UnsentLine(_Line, frozen=True, kw_only=True, tag="unsent"):
    """The text in the prompt when the chat was left; with `parts` if not all of it was typed."""

    text: str
    parts: tuple[TurnPart, ...] = ()


class SummaryLine(_Line, frozen=True, kw_only=True, tag="summary"):
    """What the list of chats shows; the last such line of a file counts."""

    title: str
    messages: _Count
    pinned: bool = False


class RoleLine(_Line, frozen=True, kw_only=True, tag="role"):
    """The role of the questions that follow; empty for none."""

    role: str


class TitleLine(_Line, frozen=True, kw_only=True, tag="title"):
    """The user's title of the chat; if empty, its first question is the title."""

    title: str


class PinnedLine(_Line, frozen=True, kw_only=True, tag="pinned"):
    """Whether the chat stands at the top of the list."""

    pinned: bool


Line = (
    ChatHeader
    | QuestionLine
    | TermsLine
    | ReplyLine
    | RoundsLine
    | GoesOnLine
    | EndLine
    | ChosenLine
    | DeletedLine
    | RestoredLine
    | WindowLine
    | UnsentLine
    | SummaryLine
    | RoleLine
    | TitleLine
    | PinnedLine
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def encode(line: Line) -> bytes:
    """A line as bytes, with its newline. Lone surrogates become `?`."""
    try:
        return _encoder.encode(line) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(line), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace") + b"\n"


def decode(raw: bytes) -> Line | None:
    """A line; None if it is cut short, damaged, or of an unknown type."""
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class NotAChat(Enum):
    """Why a file is not a chat."""

    EMPTY = auto()
    NO_HEADER = auto()


@dataclass(frozen=True)
class OtherFormat:
    """A chat of another version of the format."""

    version: int


class ChatFormatError(ValueError):
    """A file is not a chat in the format of this version."""

    def __init__(self, problem: NotAChat | OtherFormat) -> None:
        super().__init__(str(problem))
        self.problem = problem


def header_of(beginning: bytes) -> ChatHeader:
    """The first line of a chat's file. Raises ChatFormatError."""
    header = decode(beginning.partition(b"\n")[0])
    if not isinstance(header, ChatHeader):
        raise ChatFormatError(NotAChat.NO_HEADER if beginning else NotAChat.EMPTY)
    if header.version != VERSION:
        raise ChatFormatError(OtherFormat(header.version))
    return header
