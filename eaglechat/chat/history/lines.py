"""The lines of a chat's file, one JSON object each.

The first is the header. A turn has a line when it begins, a reply then lines with its rounds, at
most a second apart, and one for its end; what a turn is under is named by its id, so that a line
that is missing costs itself alone.
"""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
from msgspec import Meta

from eaglechat.chat.recording import Terms, TurnPart
from eaglechat.wire.records import ReplyEnd
from eaglechat.wire.stats import SpeculationStats

VERSION = 2


_Count = Annotated[int, Meta(ge=0, le=2**53)]
"""Numbers of turns and counts of them: what every database and JSON reader can hold."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class ChatHeader(_Line, frozen=True, kw_only=True, tag="chat"):
    """What the chat began on. `created` is local time, ISO 8601."""

    created: str
    pair: str
    target: str
    draft: str | None = None
    version: int = 1
    """A header without it is of version 1."""
    server: str = ""
    """The address of the server that had the models, which `target` names then."""


class QuestionLine(_Line, frozen=True, kw_only=True, tag="question"):
    id: _Count
    parent: _Count | None = None
    parts: tuple[TurnPart, ...]


class TermsLine(_Line, frozen=True, kw_only=True, tag="terms"):
    """What the replies and comparisons from here on were asked with."""

    terms: Terms


class ReplyLine(_Line, frozen=True, kw_only=True, tag="reply"):
    """A reply to the question `parent` begins."""

    id: _Count
    parent: _Count


class ComparisonLine(_Line, frozen=True, kw_only=True, tag="comparison"):
    """The reply `of` begins once more, without speculation."""

    id: _Count
    of: _Count


class RoundsLine(_Line, frozen=True, kw_only=True, tag="rounds"):
    """What a reply or comparison wrote since the last such line, and how."""

    of: _Count
    text: str = ""
    reasoning: str = ""
    data: str


class GoesOnLine(_Line, frozen=True, kw_only=True, tag="goes_on"):
    """A reply that was stopped goes on: more rounds follow, and another end."""

    of: _Count


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """How a reply or comparison ended; without `end` it was cut off."""

    of: _Count
    end: ReplyEnd | None = None
    stats: SpeculationStats | None = None
    changed: tuple[str, ...] = ()
    speculation_stopped: str | None = None
    settled: str | None = None
    """All its rounds, where those of its other lines were provisional."""


class ChosenLine(_Line, frozen=True, kw_only=True, tag="chosen"):
    """The path goes through this turn from here on."""

    turn: _Count


class DeletedLine(_Line, frozen=True, kw_only=True, tag="deleted"):
    """This turn and all after it are gone."""

    turn: _Count


class RestoredLine(_Line, frozen=True, kw_only=True, tag="restored"):
    """What was deleted with this turn is there again."""

    turn: _Count


class WindowLine(_Line, frozen=True, kw_only=True, tag="window"):
    """The context begins with this question."""

    question: _Count | None = None


class UnsentLine(_Line, frozen=True, kw_only=True, tag="unsent"):
    """What stood in the prompt when the chat was left; its parts, where not all was typed."""

    text: str
    parts: tuple[TurnPart, ...] = ()


class SummaryLine(_Line, frozen=True, kw_only=True, tag="summary"):
    """What the list of chats shows; the last one counts."""

    title: str
    messages: _Count
    pinned: bool = False


class RoleLine(_Line, frozen=True, kw_only=True, tag="role"):
    """What is asked from here on is asked in this role; empty for none."""

    role: str


class TitleLine(_Line, frozen=True, kw_only=True, tag="title"):
    """The chat is called this from here on; the first question again where it is empty."""

    title: str


class PinnedLine(_Line, frozen=True, kw_only=True, tag="pinned"):
    """The chat stands at the top of the list from here on, or does no more."""

    pinned: bool


Line = (
    ChatHeader
    | QuestionLine
    | TermsLine
    | ReplyLine
    | ComparisonLine
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
    """A line with its end. What is no text at all (half a character of UTF-16) becomes `?`."""
    try:
        return _encoder.encode(line) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(line), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace") + b"\n"


def decode(raw: bytes) -> Line | None:
    """A line; None for one that is torn, damaged, or of a kind that is not known yet."""
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def header_of(beginning: bytes) -> ChatHeader:
    """The first line of a chat's file. Raises ValueError where the file cannot be read."""
    header = decode(beginning.partition(b"\n")[0])
    if not isinstance(header, ChatHeader):
        raise ValueError("it does not begin like a chat" if beginning else "it is empty")
    if header.version != VERSION:
        raise ValueError(
            f"its format is version {header.version}, and this eaglechat reads version {VERSION} "
            "only; open it with the version of eaglechat that wrote it"
        )
    return header
