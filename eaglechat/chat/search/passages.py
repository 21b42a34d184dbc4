"""The words around a hit, read from the chat's file: the index holds no text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eaglechat.chat.conversation.turns import TurnId
from eaglechat.chat.history import lines
from eaglechat.chat.search.query import Query
from eaglechat.wire.records import Part

Span = tuple[int, int]
"""The bytes of a file in which the lines of a turn stand; empty where it has none."""

_LINES = re.compile(rb'^\{"type":"(?:question","id|reply","id|rounds","of|end","of)":(\d+)', re.M)
_BEFORE, _EXCERPT = 24, 120
"""Characters before the first hit, and of an excerpt in all."""


@dataclass(frozen=True)
class Passage:
    """An excerpt of a turn, and where in it the words stand that were looked for."""

    text: str
    marks: tuple[tuple[int, int], ...]


def spans(raw: bytes) -> dict[TurnId, Span]:
    """Where the lines of each turn of a chat stand in its file."""
    found: dict[TurnId, Span] = {}
    for line in _LINES.finditer(raw):
        id, start = int(line[1]), line.start()
        stop = raw.find(b"\n", start)
        first, _ = found.get(id, (start, 0))
        found[id] = first, len(raw) if stop < 0 else stop
    return found


def texts_of(file: Path, turn: TurnId, span: Span) -> tuple[str, str]:
    """What a turn says, and what was thought before. Raises OSError."""
    start, stop = span
    with file.open("rb") as stream:
        stream.seek(start)
        raw = stream.read(stop - start)
    pieces = list(_pieces(raw, turn))
    return "".join(said for said, _ in pieces), "".join(thought for _, thought in pieces)


def _pieces(raw: bytes, turn: TurnId) -> Iterator[tuple[str, str]]:
    for one in raw.split(b"\n"):
        match lines.decode(one):
            case lines.QuestionLine(id=id, parts=parts) if id == turn:
                yield "".join(part.text for part in parts), ""
            case lines.RoundsLine(of=id, text=text, reasoning=reasoning) if id == turn:
                yield text, reasoning
            case lines.EndLine(of=id, end=end) if id == turn and end is not None:
                is_thought = end.tail_part is Part.REASONING
                yield ("", end.tail) if is_thought else (end.tail, "")


def passage(text: str, query: Query) -> Passage:
    """The words around the first hit in a text; its beginning where there is none."""
    places = query.marks(text)
    start = max(0, places[0][0] - _BEFORE) if places else 0
    if start:
        start = text.find(" ", start, places[0][0]) + 1 or start
    excerpt = " ".join(text[start : start + _EXCERPT].split())
    shown = ("…" if start else "") + excerpt + ("…" if len(text) > start + _EXCERPT else "")
    return Passage(shown, tuple(query.marks(shown)))
