"""The list of the menu: its sections, in each what the filter leaves, a row each, which is laid out
in columns for the width that it gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

from eaglechat.hub.fit import Fit
from eaglechat.hub.units import format_bytes
from eaglechat.tui.screens.menu.known import Known, served
from eaglechat.tui.widgets.readouts import MUTED, Part
from eaglechat.words import drafting, wording

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
_MARK, _SIZE, _WORD, _GAIN, _NOTE = 2, 9, 9, 15, 14
_LONGEST_NAME = 44
_AGE = 11
_COLOURS = {"fits": MUTED, "tight": "$text-warning", "too large": "$text-error", None: MUTED}


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
            found.append(Line(heading(title, size, is_first=not found)))
        found += sorted(section, key=lambda line: line.rank)
    if words:
        if not found:
            found.append(Line(sentence(f"Nothing here matches “{typed.strip()}”.")))
        search = door(f"Search the Hub for “{typed.strip()}”…", "")
        found.append(Line(search, "search", _SEARCH))
    return found


def lines_of_path(directories: Sequence[str], models: Iterable[Known]) -> list[Line]:
    """What completes a typed path: directories, by `in:` and their name, and GGUF files."""
    found = [Line(heading("Files", "size", is_first=True))]
    found += [Line(door(name, ""), f"in:{name}", 1) for name in directories]
    found += [Line(model_row(known), known.offer.key) for known in models]
    if len(found) == 1:
        found = [Line(sentence("No directory and no GGUF file begins like this."))]
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
            section.append(Line(model_row(known), offer.key, rank))
    here.sort(key=lambda line: line.rank)
    doors = {
        id: [Line(door(name, what), id, _DOOR)]
        for id, (name, what) in DOORS.items()
        if all(word in f"{name} {what}".casefold() for word in words)
    }
    if (more := len(here) - MODELS_HERE) > 0:
        row = door(DOORS["library"][0], f"{more:,} more; typing finds them")
        doors["library"] = [Line(row, "library", _DOOR)]
    resumable = [
        Line(chat_row(chat), f"chat:{chat.name}", _CHAT)
        for chat in chats
        if all(word in chat.title.casefold() for word in words)
    ]
    past = doors.get("past_chats", []) if resumable or words else []
    yield "Continue", "", [*resumable, *past]
    yield "Ready", "size", [*ready, *here[:MODELS_HERE], *doors.get("library", [])]
    yield "Get", "download", [*to_get, *([] if words else doors["search"])]
    yield "Servers", "", served


@dataclass(frozen=True)
class Columns:
    """Widths in cells; 0 for a column that has no room."""

    name: int
    bar: int
    drafts: int
    gain: int
    note: int
    gap: int

    @property
    def rest(self) -> int:
        """The cells of all columns behind the name, with the gaps between them."""
        widths = (_SIZE, self.bar, _WORD, self.drafts, self.gain, self.note)
        return sum(one + self.gap for one in widths if one) - self.gap


def columns(width: int) -> Columns:
    if width >= 100:
        shown = Columns(0, 8, 18, _GAIN, _NOTE, 2)
    elif width >= 58:
        shown = Columns(0, 4 if width >= 70 else 0, 9, _GAIN, 0, 1)
    else:
        shown = Columns(0, 0, 0, _GAIN if width >= 48 else 0, 0, 1)
    left = width - _MARK - shown.gap - shown.rest
    return Columns(
        min(left, _LONGEST_NAME), shown.bar, shown.drafts, shown.gain, shown.note, shown.gap
    )


class Row(Visual):
    """Lines that are made when they are drawn, which most of a long list never are."""

    def __init__(self, build: Callable[[int], Content], height: int = 1) -> None:
        self._build, self._height = build, height

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self._build(width).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._height


def heading(title: str, size: str, *, is_first: bool) -> Row:
    """The title of a section; with the names of its columns, unless that of the sizes is empty."""

    def build(width: int) -> Content:
        own = columns(width)
        cells: list[Part] = [(_cell(title, _MARK + own.name), "bold $primary")]
        if size:
            memory = own.bar + own.gap + _WORD if own.bar else _WORD
            named = [(f"{size} ", -_SIZE), ("memory", memory), ("drafter", own.drafts)]
            named.append(("speed", own.gain))
            cells += _spaced(own, [(_cell(text, cells), MUTED) for text, cells in named if cells])
        return Content.assemble("" if is_first else "\n", *cells)

    return Row(build, 1 if is_first else 2)


def sentence(text: str) -> Row:
    return Row(lambda width: Content(wording.fitting(text, width)))


def door(name: str, explanation: str) -> Row:
    """Another screen, and what is there."""
    return Row(lambda _: Content.assemble("  ", name, (f"  {explanation}", MUTED)))


def chat_row(summary: ChatSummary) -> Row:
    """Its title, its model, and when it was used last."""

    def build(width: int) -> Content:
        own = columns(width)
        age = wording.ago(summary.used, time.time())
        pair = summary.header.pair
        # In the columns of the models below where these are wide enough.
        widths = (own.drafts, own.gain) if own.note else (own.drafts + own.gain - _AGE, _AGE)
        texts = [(pair, widths[0])] if own.drafts else []
        cells = [(_cell(text, cells), MUTED) for text, cells in (*texts, (age, widths[1]))]
        behind = sum(cells + own.gap for _, cells in (*texts, (age, widths[1])))
        behind += own.note + own.gap if own.note else 0
        whole = _MARK + own.name + own.gap + own.rest
        title = _cell(f"  {summary.title}", whole - behind)
        return Content.assemble(title, *_spaced(own, cells))

    return Row(build)


def model_row(known: Known) -> Row:
    return Row(lambda width: _model(known, columns(width)))


def _model(known: Known, own: Columns) -> Content:
    pair = known.offer.pair
    start: list[Part] = [_mark(known), (_cell(known.offer.name, own.name), "bold" if pair else "")]
    gap = " " * own.gap
    if pair is not None and pair.server is not None:
        text = wording.fitting(served(pair, known.news), own.rest)
        is_away = known.news is not None and known.news.trouble
        return Content.assemble(*start, gap, (text, "$text-error" if is_away else MUTED))
    reason = known.status.problem if known.status is not None else known.trouble
    if reason and known.moving is None:
        text = wording.fitting(f"cannot run: {reason}" if pair else reason, own.rest)
        return Content.assemble(*start, gap, (text, "$text-error"))
    judged = known.fit
    word = (judged.word or "?") if judged else ""
    cells: list[tuple[str, str]] = [(_cell(_size(known), -_SIZE), "")]
    if own.bar:
        cells.append((_bar(judged.share if judged else 0.0, own.bar), _colour(judged)))
    cells.append((_cell(word, _WORD), _colour(judged)))
    if own.drafts:
        cells.append((_cell(_drafts(known), own.drafts), ""))
    if own.gain:
        text, style = _brings(known)
        cells.append((_cell(text, own.gain), style))
    if own.note:
        cells.append((_cell(_note(known), own.note), MUTED))
    return Content.assemble(*start, *_spaced(own, cells))


def _mark(known: Known) -> tuple[str, str]:
    pair, news = known.offer.pair, known.news
    if known.moving is not None:
        return "↓ ", "$text-accent"
    if known.problem or (news is not None and news.trouble):
        return "✗ ", "$text-error"
    if pair is not None and pair.server is not None:
        served_model = news.model(pair.model) if news else None
        is_ready = news is not None and (served_model is None or served_model.is_ready)
        return ("● ", "$text-success") if is_ready else ("○ ", MUTED)
    if known.status is not None and known.status.target is not None:
        return "● ", "$text-success"
    return ("↓ " if known.offer.state == "partly" else "○ "), MUTED


def _size(known: Known) -> str:
    """The size of a pair's files; a plus stands for a draft of unknown size."""
    if known.status is not None:
        headers = (known.status.target, known.status.draft)
        size = sum(header.size_bytes for header in headers if header is not None)
        return f"{format_bytes(size)} " if size else ""
    if (said := known.moving or known.facts) is not None:
        return f"{format_bytes(said.bytes_total)} "
    entry, seen = known.offer.entry, known.seen_bytes
    if entry is None or seen is None:
        return ""
    return f"{format_bytes(seen)}{' ' if entry.size else '+'}"


def _drafts(known: Known) -> str:
    if known.drafters is not None:
        return drafting.badge(known.drafters)
    # Which kind its draft is, its header will say.
    entry = known.offer.entry
    return "a draft" if entry is not None and entry.draft.repo else ""


def _brings(known: Known) -> tuple[str, str]:
    """How fast drafting makes it, in plain decoding's speed, and where that was measured."""
    if (moving := known.moving) is not None:
        share = moving.bytes_done / moving.bytes_total if moving.bytes_total else 0.0
        return f"{moving.stage} {share:.0%}", "$text-accent"
    if (gain := known.gain) is not None:
        if gain.verdict == "same":
            return "same as plain", MUTED
        if gain.verdict != "unclear":
            style = "bold" if gain.verdict == "faster" else "$text-warning"
            return f"{wording.about_times(gain.speed_up)} here", style
    entry = known.offer.entry
    if entry is not None and entry.speed_up is not None:
        return f"{wording.about_times(entry.speed_up)} published", MUTED
    return "", ""


def _note(known: Known) -> str:
    entry = known.offer.entry
    if entry is None or known.offer.pair is not None:
        return ""
    if known.offer.bytes_here:
        return f"{format_bytes(known.offer.bytes_here)} here"
    is_gated = known.facts is not None and known.facts.gated
    return "gated" if is_gated else "to convert" if entry.draft.checkpoint else ""


def _bar(share: float, width: int) -> str:
    """A line that is filled to `share`; of what needs anything at all, half a cell."""
    halves = min(max(round(share * width * 2), share > 0), width * 2)
    return ("━" * (halves // 2) + "╸" * (halves % 2)).ljust(width)


def _colour(judged: Fit | None) -> str:
    return _COLOURS[judged.word if judged else None]


def _cell(text: str, width: int) -> str:
    """A text in that many cells; at the right end of them if the width is negative."""
    text = wording.fitting(text, abs(width))
    return text.rjust(-width) if width < 0 else set_cell_size(text, width)


def _spaced(own: Columns, cells: list[tuple[str, str]]) -> list[Part]:
    """Cells behind the name, each with the gap before it."""
    return [part for cell in cells for part in (" " * own.gap, cell)]
