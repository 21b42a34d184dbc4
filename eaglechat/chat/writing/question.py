"""The parts of a question: typed text, long pastes and files.

In the prompt and in the transcript a mark such as `[pasted: 40 lines]` stands for a paste or a
file. What is sent is the text of all parts. A title has the marks, and the places that a search of
the open chat finds are places in the text with marks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from eaglechat.chat.recording import TurnPart
from eaglechat.hub.units import format_bytes

LONGEST_PASTE = 20
"""Lines up to which a paste is treated as typed text."""
_LONGEST_PASTE_CHARS = 2_000
"""The same in characters: as much as the lines have at 100 characters each."""
_BYTES_PER_TOKEN = 4

QuestionParts = tuple[TurnPart, ...]


def typed(text: str) -> QuestionParts:
    return (TurnPart(text),) if text else ()


def together(one: QuestionParts, other: QuestionParts) -> QuestionParts:
    """Both, with an empty line between them."""
    return (*one, TurnPart("\n\n"), *other) if one and other else one or other


def text_of(parts: Sequence[TurnPart]) -> str:
    """The text of all parts, as it is sent."""
    return "".join(part.text for part in parts)


def pasted(text: str) -> TurnPart | None:
    """A long paste as a part; None for a short one."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_long = len(text.splitlines()) > LONGEST_PASTE or len(text) > _LONGEST_PASTE_CHARS
    return TurnPart(text, source="paste") if is_long else None


def of_file(name: str, content: str) -> TurnPart:
    """A file as a part: its name, and its content in a fence that the content does not close."""
    ticks = max(map(len, re.findall(r"`{3,}", content)), default=2) + 1
    fence, kind = "`" * max(3, ticks), name.rpartition(".")[2]
    language = kind if "." in name and kind.isalnum() else ""
    end = "" if content.endswith("\n") or not content else "\n"
    text = f"{name}:\n{fence}{language}\n{content}{end}{fence}"
    return TurnPart(text, source="file", name=name)


def tokens_about(text: str) -> int:
    """An estimate of the tokens in a text: a quarter of its bytes in UTF-8."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def mark(part: TurnPart) -> str:
    size = format_bytes(len(part.text.encode("utf-8", "replace")))
    tokens = f"~{tokens_about(part.text):,} tokens"
    if part.source == "file":
        name = "".join(c if c.isprintable() else "?" for c in part.name)
        return f"[{name}: {size}, {tokens}]"
    lines = len(part.text.splitlines())
    length = f"{lines:,} lines" if lines > LONGEST_PASTE else size
    return f"[pasted: {length}, {tokens}]"


def shown(parts: Sequence[TurnPart]) -> str:
    """A question as it is shown, with marks."""
    return "".join(part.text if part.source == "typed" else mark(part) for part in parts)


def composed(written: Sequence[TurnPart]) -> QuestionParts:
    """The parts as they are asked: without space around them, and with an empty line between a file
    and what stands beside it."""
    parts = _joined(written)
    sources = ["file", *(part.source for part in parts), "file"]
    asked: list[TurnPart] = []
    for place, part in enumerate(parts):
        text = part.text
        if part.source == "typed":
            text = text.lstrip() if sources[place] == "file" else text
            text = text.rstrip() if sources[place + 2] == "file" else text
        if not text:
            continue
        if asked and "file" in (asked[-1].source, part.source):
            asked.append(TurnPart("\n\n"))
        asked.append(replace(part, text=text))
    return tuple(_joined(asked))


def _joined(parts: Sequence[TurnPart]) -> list[TurnPart]:
    """The parts that have text, with neighbours that were typed as one."""
    joined: list[TurnPart] = []
    for part in parts:
        if joined and part.source == joined[-1].source == "typed":
            joined[-1] = TurnPart(joined[-1].text + part.text)
        elif part.text:
            joined.append(part)
    return joined


class Marks:
    """Which mark in the prompt stands for which part."""

    def __init__(self) -> None:
        self._parts: dict[str, TurnPart] = {}

    def hold(self, part: TurnPart) -> str:
        """The mark of a part; numbered if another part has the same."""
        wanted, number = mark(part), 1
        found = wanted
        while self._parts.get(found, part) != part:
            number += 1
            found = f"{wanted[:-1]}, no. {number}]"
        self._parts[found] = part
        return found

    def text(self, parts: Sequence[TurnPart]) -> str:
        """Parts as text with marks."""
        return "".join(p.text if p.source == "typed" else self.hold(p) for p in parts)

    def parts(self, text: str) -> QuestionParts:
        parts, end = [], 0
        for start, stop in self.spans(text):
            parts += [*typed(text[end:start]), self._parts[text[start:stop]]]
            end = stop
        return (*parts, *typed(text[end:]))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each mark in a text, from left to right."""
        if not self._parts:
            return []
        marks = sorted(self._parts, key=len, reverse=True)
        return [found.span() for found in re.finditer("|".join(map(re.escape, marks)), text)]
