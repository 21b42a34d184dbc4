"""The list of the menu: its sections, in each what the filter leaves, a row each, which is laid out
in columns for the width that it gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from eaglechat.gguf.memory import context_size, memory_need
from eaglechat.hub import fit
from eaglechat.hub.fit import Fit, Machine
from eaglechat.hub.local.pairs import InspectedPair, OfferedPair
from eaglechat.hub.local.speeds import Gain
from eaglechat.hub.units import format_bytes
from eaglechat.settings.model import EngineSettings
from eaglechat.tui.screens.menu.servers import ServerNews, served
from eaglechat.tui.themes import MUTED
from eaglechat.tui.widgets.filter import Row
from eaglechat.wire.drafters import DrafterKind
from eaglechat.words import drafting, wording

if TYPE_CHECKING:
    from eaglechat.chat.store import ChatSummary
    from eaglechat.hub.downloads.queue import Install

MODELS_HERE = 40
"""Rows of models that other programs have, at most. Typing finds the rest."""
DOORS = {
    "past_chats": ("Past chats…", "find one by its words"),
    "library": ("Models on this machine…", "load, pair up or delete"),
    "search": ("Search the Hub…", "other models, and drafts that fit them"),
}
"""Other screens, by the action that opens each."""
_CHAT, _DOOR, _SEARCH = 2, 3, 4
_MARK, _LONGEST_NAME, _LONGEST_PAIR, _AGE = 2, 44, 18, 11
_COLUMNS = (
    (100, 2, {"size": 9, "bar": 8, "memory": 9, "drafter": 18, "speed": 15, "note": 14}),
    (70, 1, {"size": 9, "bar": 4, "memory": 9, "drafter": 9, "speed": 15}),
    (58, 1, {"size": 9, "memory": 9, "drafter": 9, "speed": 15}),
    (48, 1, {"size": 9, "memory": 9, "speed": 15}),
    (0, 1, {"size": 9, "memory": 9}),
)
"""From which width, the cells between columns, and those of each column behind the name."""
_WIDEST = 131
"""Cells of the row of a model with a long name."""
_COLOURS = {"fits": MUTED, "tight": "$text-warning", "too large": "$text-error", None: MUTED}
Styled = tuple[str, str]
"""A text and its style."""


@dataclass(frozen=True)
class Known:
    """A row of the menu that is a model, and what is known of it."""

    offer: OfferedPair
    machine: Callable[[], Machine]
    settings: EngineSettings
    status: InspectedPair | None = None
    moving: Install | None = None
    news: ServerNews | None = None
    """The last answer of the server that has it."""
    gain: Gain | None = None

    @property
    def problem(self) -> str | None:
        """Why the pair cannot run here."""
        if self.status is not None and self.status.problem:
            return self.status.problem
        judged = self.fit
        return judged.text if judged is not None and judged.fits is False else None

    @property
    def drafters(self) -> tuple[DrafterKind, ...] | None:
        """What drafts, besides n-grams; None if that is not known."""
        entry = self.offer.entry
        if self.status is not None and self.status.target is not None:
            return self.status.drafters
        if entry is None:
            return None
        kind = entry.drafter or ("eagle3" if entry.draft.checkpoint else None)
        return (kind,) if kind else None

    @cached_property
    def fit(self) -> Fit | None:
        """Of the memory that the pair needs, by its headers, else by its size; None if neither is
        known."""
        if self.status is not None and self.status.loaded_target is not None:
            models = self.status.loaded_target, self.status.draft
            settings = self.settings
            n_ctx = context_size(*models, fit.free(self.machine()), settings)
            need = memory_need(*models, n_ctx, settings.kv_type, settings.draft_kv_type)
            return fit.judge(need, self.machine())
        seen = self.seen_bytes
        return fit.judge(fit.need_by_size(seen), self.machine()) if seen else None

    @property
    def seen_bytes(self) -> int | None:
        """What the catalogue says of the size of a pair that is not here: of both files, or of the
        target alone."""
        entry = self.offer.entry if self.offer.pair is None else None
        return (entry.size or entry.target.size) if entry else None

    def rank(self, words: Sequence[str]) -> int | None:
        """How well it matches the words: 0 by its whole name, 1 by a part of it, 2 by something
        else; None if a word is missing."""
        name = self.offer.name.casefold()
        if name.split() == [*words]:
            return 0
        if all(word in name for word in words):
            return 1
        return 2 if all(word in self._searched for word in words) else None

    @cached_property
    def _searched(self) -> str:
        """The text that typing filters."""
        offer, entry = self.offer, self.offer.entry
        words = [offer.name, offer.state, offer.pair.target.name if offer.pair else ""]
        if entry is not None:
            words += [entry.title, entry.licence, entry.architecture or ""]
            words += [str(entry.target), entry.base_model or "", entry.draft.of_hub]
        if self.status is not None:
            headers = filter(None, (self.status.target, self.status.draft))
            words += [f"{header.architecture} {header.quantization}" for header in headers]
        if self.drafters is not None:
            words.append(drafting.badge(self.drafters))
        return " ".join(words).casefold()

    # What is drawn of it

    def row(self) -> Row:
        return Row(self._drawn)

    def _drawn(self, width: int) -> Content:
        pair, news, status = self.offer.pair, self.news, self.status
        mark, colour = self._mark()
        cells: dict[str, Styled]
        if pair is not None and pair.server is not None:
            is_away = news is not None and news.trouble
            cells = {"all": (served(pair, news), "$text-error" if is_away else MUTED)}
        elif status is not None and status.problem and self.moving is None:
            cells = {"all": (f"cannot run: {status.problem}", "$text-error")}
        else:
            judged = self.fit
            fits = _COLOURS[judged.word if judged else None]
            room, share = 8 if width >= 100 else 4, judged.share if judged else 0.0
            cells = {
                "size": (self._size(), ""),
                "bar": ("━" * min(max(round(share * room), share > 0), room), fits),
                "memory": ((judged.word or "?") if judged else "", fits),
                "drafter": (self._drafts(), ""),
                "speed": self._brings(),
                "note": (self._note(), MUTED),
            }
        line = _in_columns(width, f"{mark} {self.offer.name}", "bold" if pair else "", cells)
        return line.stylize(f"not bold {colour}", 0, 1)

    def _mark(self) -> Styled:
        pair, news = self.offer.pair, self.news
        if self.moving is not None:
            return "↓", "$text-accent"
        if self.problem or (news is not None and news.trouble):
            return "✗", "$text-error"
        if pair is not None and pair.server is not None:
            served_model = news.found.model(pair.model) if news and news.found else None
            is_ready = news is not None and (served_model is None or served_model.is_ready)
            return ("●", "$text-success") if is_ready else ("○", MUTED)
        if self.status is not None and self.status.target is not None:
            return "●", "$text-success"
        return ("↓" if self.offer.state == "partly" else "○"), MUTED

    def _size(self) -> str:
        """The size of a pair's files; a plus stands for a draft of unknown size."""
        if self.status is not None:
            headers = (self.status.target, self.status.draft)
            size = sum(header.size_bytes for header in headers if header is not None)
            return f"{format_bytes(size)} " if size else ""
        if self.moving is not None:
            return f"{format_bytes(self.moving.bytes_total)} "
        entry, seen = self.offer.entry, self.seen_bytes
        if entry is None or seen is None:
            return ""
        return f"{format_bytes(seen)}{' ' if entry.size else '+'}"

    def _drafts(self) -> str:
        if self.drafters is not None:
            return drafting.badge(self.drafters)
        # Which kind its draft is, its header will say.
        entry = self.offer.entry
        return "a draft" if entry is not None and entry.draft.repo else ""

    def _brings(self) -> Styled:
        """How fast drafting makes it, in plain decoding's speed, and where that was measured."""
        if (moving := self.moving) is not None:
            share = moving.bytes_done / moving.bytes_total if moving.bytes_total else 0.0
            return f"{moving.stage} {share:.0%}", "$text-accent"
        if (gain := self.gain) is not None:
            if gain.verdict == "same":
                return "same as plain", MUTED
            if gain.verdict != "unclear":
                style = "bold" if gain.verdict == "faster" else "$text-warning"
                return f"{wording.about_times(gain.speed_up)} here", style
        entry = self.offer.entry
        if entry is not None and entry.speed_up is not None:
            return f"{wording.about_times(entry.speed_up)} published", MUTED
        return "", ""

    def _note(self) -> str:
        entry = self.offer.entry
        if entry is None or self.offer.pair is not None:
            return ""
        if self.offer.bytes_here:
            return f"{format_bytes(self.offer.bytes_here)} here"
        return "to convert" if entry.draft.checkpoint else ""


@dataclass(frozen=True)
class Line:
    """`id` is None for what cannot be chosen. `rank` says how well it matches the filter: 0 is
    best."""

    row: Row
    id: str | None = None
    rank: int = 0


def lines(typed: str, chats: Sequence[ChatSummary], models: Iterable[Known]) -> list[Line]:
    """The sections, each with its title and the lines in which all words are found."""
    words = typed.casefold().split()
    ready: list[Line] = []
    here: list[Line] = []
    to_get: list[Line] = []
    on_servers: list[Line] = []
    for known in models:
        if (rank := known.rank(words)) is not None:
            offer = known.offer
            section = to_get if offer.pair is None else on_servers if offer.pair.server else ready
            section = here if offer.state == "here" else section
            section.append(Line(known.row(), offer.key, rank))
    here.sort(key=lambda line: line.rank)
    doors = {
        id: [Line(_door(name, what), id, _DOOR)]
        for id, (name, what) in DOORS.items()
        if all(word in f"{name} {what}".casefold() for word in words)
    }
    if (more := len(here) - MODELS_HERE) > 0:
        row = _door(DOORS["library"][0], f"{more:,} more; typing finds them")
        doors["library"] = [Line(row, "library", _DOOR)]
    resumable = [
        Line(_chat_row(chat), f"chat:{chat.name}", _CHAT)
        for chat in chats
        if all(word in chat.title.casefold() for word in words)
    ]
    past = doors.get("past_chats", []) if resumable or words else []
    found: list[Line] = []
    for title, size, section in (
        ("Continue", "", [*resumable, *past]),
        ("Ready", "size", [*ready, *here[:MODELS_HERE], *doors.get("library", [])]),
        ("Get", "download", [*to_get, *([] if words else doors["search"])]),
        ("Servers", "", on_servers),
    ):
        if section:
            found.append(Line(_heading(title, size, is_first=not found)))
        found += sorted(section, key=lambda line: line.rank)
    if words:
        if not found:
            found.append(Line(_sentence(f"Nothing here matches “{typed.strip()}”.")))
        search = _door(f"Search the Hub for “{typed.strip()}”…", "")
        found.append(Line(search, "search", _SEARCH))
    return found


def lines_of_path(directories: Sequence[str], models: Iterable[Known]) -> list[Line]:
    """What completes a typed path: directories, by `in:` and their name, and GGUF files."""
    found = [Line(_heading("Files", "size", is_first=True))]
    found += [Line(_door(name, ""), f"in:{name}", 1) for name in directories]
    found += [Line(known.row(), known.offer.key) for known in models]
    if len(found) == 1:
        found = [Line(_sentence("No directory and no GGUF file begins like this."))]
    return found


def _in_columns(width: int, name: str, style: str, cells: Mapping[str, Styled]) -> Content:
    """A name behind its mark, and in each column that there is room for its cell; one that is named
    “all” stands in place of them."""
    gap, columns = next((gap, columns) for least, gap, columns in _COLUMNS if width >= least)
    behind = sum(cells + gap for cells in columns.values())
    parts = [(_cell(name, min(width - behind, _MARK + _LONGEST_NAME)), style)]
    if "all" in cells:
        text, style = cells["all"]
        parts += [(" " * gap, ""), (wording.fitting(text, behind - gap), style)]
        columns = {}
    for column, room in columns.items():
        text, style = cells.get(column, ("", ""))
        text = wording.fitting(text, room)
        parts += [
            (" " * gap, ""),
            (text.rjust(room) if column == "size" else _cell(text, room), style),
        ]
    return Content.assemble(*parts)


def _cell(text: str, width: int) -> str:
    return set_cell_size(wording.fitting(text, width), width)


def _heading(title: str, size: str, *, is_first: bool) -> Row:
    """The title of a section; with the names of its columns, unless that of the sizes is empty."""
    names = {"size": f"{size} ", "memory": "memory", "drafter": "drafter", "speed": "speed"}
    cells = {column: (name, MUTED) for column, name in names.items()} if size else {}

    def build(width: int) -> Content:
        above = "" if is_first else "\n"
        return Content.assemble(above, _in_columns(width, title, "bold $primary", cells))

    return Row(build, 1 if is_first else 2)


def _sentence(text: str) -> Row:
    return Row(lambda width: Content(wording.fitting(text, width)))


def _door(name: str, explanation: str) -> Row:
    """Another screen, and what is there."""
    return Row(lambda _: Content.assemble("  ", name, (f"  {explanation}", MUTED)))


def _chat_row(summary: ChatSummary) -> Row:
    """Its title, its model, and when it was used last."""

    def build(width: int) -> Content:
        behind = f"  {wording.ago(summary.used, time.time()):>{_AGE}}"
        if width >= 58:
            behind = f"  {wording.fitting(summary.header.pair, _LONGEST_PAIR)}{behind}"
        title = _cell(f"  {summary.title}", min(width, _WIDEST) - cell_len(behind))
        return Content.assemble(title, (behind, MUTED))

    return Row(build)
