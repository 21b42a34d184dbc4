"""What the list of the menu shows, in its order: sections, and in each what the filter leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eaglechat.tui.screens.menu import rows
from eaglechat.tui.screens.menu.known import Known
from eaglechat.tui.screens.menu.rows import Row

if TYPE_CHECKING:
    from eaglechat.chat.store import ChatSummary

MODELS_HERE = 40
"""Rows of models that other programs have, at most. Typing finds the rest."""
DOORS = {
    "past_chats": ("Past chats…", "find one by its words"),
    "library": ("Models on this machine…", "load, pair up or delete"),
    "search": ("Search the Hub…", "other models, and drafts that fit them"),
}
"""Other screens, by the action that opens each."""
_CHAT, _DOOR, _SEARCH = 2, 3, 4


@dataclass(frozen=True)
class Line:
    """`id` is None for what cannot be chosen. `rank` says how well it matches the filter: 0 is
    best."""

    row: Row
    id: str | None = None
    rank: int = 0


def lines(typed: str, chats: Sequence[ChatSummary], models: Iterable[Known]) -> list[Line]:
    words = typed.casefold().split()
    found: list[Line] = []
    for title, size, section in _sections(words, chats, models):
        if section:
            found.append(Line(rows.heading(title, size, is_first=not found)))
        found += sorted(section, key=lambda line: line.rank)
    if words:
        if not found:
            found.append(Line(rows.sentence(f"Nothing here matches “{typed.strip()}”.")))
        search = rows.door(f"Search the Hub for “{typed.strip()}”…", "")
        found.append(Line(search, "search", _SEARCH))
    return found


def lines_of_path(directories: Sequence[str], models: Iterable[Known]) -> list[Line]:
    """What completes a typed path: directories, by `in:` and their name, and GGUF files."""
    found = [Line(rows.heading("Files", "size", is_first=True))]
    found += [Line(rows.door(name, ""), f"in:{name}", 1) for name in directories]
    found += [Line(rows.model(known), known.offer.key) for known in models]
    if len(found) == 1:
        found = [Line(rows.sentence("No directory and no GGUF file begins like this."))]
    return found


def _sections(
    words: Sequence[str], chats: Sequence[ChatSummary], models: Iterable[Known]
) -> Iterator[tuple[str, str, list[Line]]]:
    """The title of each, the name of its sizes, and its lines in which all words are found."""
    ready: list[Line] = []
    here: list[Line] = []
    to_get: list[Line] = []
    served: list[Line] = []
    for known in models:
        if (rank := known.rank(words)) is not None:
            offer = known.offer
            section = to_get if offer.pair is None else served if offer.pair.server else ready
            section = here if offer.state == "here" else section
            section.append(Line(rows.model(known), offer.key, rank))
    here.sort(key=lambda line: line.rank)
    doors = {
        id: [Line(rows.door(name, what), id, _DOOR)]
        for id, (name, what) in DOORS.items()
        if all(word in f"{name} {what}".casefold() for word in words)
    }
    if (more := len(here) - MODELS_HERE) > 0:
        row = rows.door(DOORS["library"][0], f"{more:,} more; typing finds them")
        doors["library"] = [Line(row, "library", _DOOR)]
    resumable = [
        Line(rows.chat(chat), f"chat:{chat.name}", _CHAT)
        for chat in chats
        if all(word in chat.title.casefold() for word in words)
    ]
    past = doors.get("past_chats", []) if resumable or words else []
    yield "Continue", "", [*resumable, *past]
    yield "Ready", "size", [*ready, *here[:MODELS_HERE], *doors.get("library", [])]
    yield "Get", "download", [*to_get, *([] if words else doors["search"])]
    yield "Servers", "", served
