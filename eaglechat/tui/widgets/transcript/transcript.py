"""The conversation on the screen: questions, notices, and replies while they are generated.

One widget draws all of it row by row (Textual's line API). Only entries near the visible part are
wrapped; the others have an estimated height until they come into sight.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import Reactive, reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.widget import Widget

from eaglechat.chat.search import folded, places
from eaglechat.chat.turns import TurnId
from eaglechat.settings.model import View
from eaglechat.tui.commands.keys import moves
from eaglechat.tui.commands.table import COMMANDS
from eaglechat.tui.services import desktop
from eaglechat.tui.themes import MUTED, token_look
from eaglechat.tui.widgets.transcript.entries import KINDS, MARGIN, NOTE, DrawnEntry, Rows
from eaglechat.tui.widgets.transcript.formatting import CODE, COPY, EMPHASIS, LINK, STRONG
from eaglechat.tui.widgets.transcript.markdown import (
    Code,
    Look,
    code_blocks,
    code_ending_at,
    link_at,
    links,
)
from eaglechat.tui.widgets.transcript.wrapping import FAINT, TEXT, Piece, place_at
from eaglechat.words import timeline, wording
from eaglechat.words.neutral import neutralise

Item = TypeVar("Item")
Highlight = tuple[int, int, Style]
"""Where it begins and ends in the text of an entry, and what is added to the style of the text."""

MARKER_CELLS, PADDING = 2, 1
PROSE_CELLS = 96
"""The widest row of text: the eye loses its line in a longer one."""
_MARKER, _PLACE = "marker", "place"
_MARKED, _FOUND = Style(reverse=True), Style(underline=True)
_FORMATS = {STRONG: "bold", EMPHASIS: "italic", LINK: "underline"}
_LOOKS = {
    NOTE: f"italic {MUTED}",
    _PLACE: "$accent",
    FAINT: MUTED,
    COPY: f"underline {MUTED}",
}
_SELECTED, _CODE_GROUND = "$primary 15%", "$foreground 14%"


@dataclass(frozen=True)
class Aim:
    """Where to scroll to: row `row` of the entry `key`, or the row of a passage of its text. It is
    shown `below_edge` rows below the upper edge of the view."""

    key: str
    row: int = 0
    span: tuple[int, int] | None = None
    below_edge: int = 0


class Transcript(ScrollView):
    """The entries of a chat, in order.

    It stays at the newest text until the reader scrolls up, and again after the reader has returned
    to the bottom or has asked something.
    """

    BINDINGS = moves({one.turn_key: f"screen.{one.call()}" for one in COMMANDS if one.turn_key})
    can_focus = False
    """It has the focus only while a turn is selected by a key: letters are commands then."""
    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-gutter: stable;
        scrollbar-size-vertical: 1;
        background: $background;
        color: $foreground;
    }
    """

    # Textual's own asks for a layout whenever it is set: for every new row.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    view: reactive[View] = reactive[View]("live", repaint=False)
    """How replies are drawn."""

    selected: reactive[TurnId | None] = reactive(None)
    """The turn that commands work on; None for the last one."""

    has_new_below: reactive[bool] = reactive(False, repaint=False)
    """Whether text came after the reader had scrolled up, away from the end."""

    @dataclass
    class RoundChosen(Message):
        """The reader clicked on a token of the selected reply. `index` is that of its round."""

        turn: TurnId
        index: int

    @dataclass
    class LinkChosen(Message):
        """The reader wants to open an address."""

        address: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows = Rows()
        self.is_following = True
        """Whether the view stays at the end as text is added."""
        self.first_row = 0
        """The row at the upper edge of the view: negative as long as all rows fit, for they stand
        at its lower edge."""
        self._aim: Aim | None = None
        """Where the next arrangement scrolls to."""
        self.marked: tuple[str, tuple[int, int]] | None = None
        """The key of the entry with the marked passage, and the passage's start and end in its
        text."""
        self._looked_for = ""
        """Folded words, of which every place in the turns is underlined."""
        self._arranged_for = Size(0, 0)
        self._styles: dict[tuple[str, str, bool], Style] = {}
        self._kept_ground: tuple[Style, Color] | None = None
        self._steps: dict[object, tuple[object, Iterator[Any]]] = {}
        """By what is stepped through: the entries of then, and what is left of it."""

    # Which entries there are

    def show(self, wanted: Sequence[timeline.Entry]) -> None:
        before, known = self.rows.drawn, self.rows.place_of
        aim = None if self.is_following else self._aim or self.in_sight()
        is_begun = False
        for entry in wanted:
            old = before[known[entry.key]].entry if entry.key in known else None
            if entry.recording is not None and entry.note is None:
                # It is new, or its reply is being continued.
                is_begun |= old is None or old.note is not None
            elif entry.kind == "thought" and old is not None and old.note is None:
                # Somebody who reads it, and not what is written, goes on reading.
                self.rows.unfolded |= set() if self.is_following else {entry.key}
        self.rows.take(wanted)
        if any(self.rows.place_of.get(key) != place for key, place in known.items()):
            self._drop_selection()
        if self.selected not in {entry.turn for entry in wanted}:
            self.selected = None
        if is_begun:
            self.is_following, aim = True, None
        self._arrange(aim)
        if wanted and wanted[-1].key not in known:
            self._grew()
        for entry in wanted:
            if entry.recording is not None and entry.note is None:
                self.follow(entry)

    def follow(self, entry: timeline.Entry) -> None:
        """Draw what was added to the reply of this entry."""
        rows, place = self.rows, self.rows.place_of.get(entry.key)
        if place is None or not rows.drawn[place].is_measured:
            return
        reply = rows.drawn[place]
        height, first = reply.height, reply.follow()
        if first is None:
            return
        self._grew()
        for y in range(first, height):
            reply.strips.pop(y, None)
        rows.measure([place], again=True)
        if reply.height != height:
            self._arrange(changed_from=rows.tops[place] + first)
        else:
            top = rows.tops[place] + first - self.first_row
            self.refresh(Region(0, top, self.scrollable_size.width, height - MARGIN - first))

    def _grew(self) -> None:
        self.has_new_below = self.scroll_offset.y < self.max_scroll_y

    def clear(self) -> None:
        """Remove every entry, before another chat is shown."""
        self.show([])
        self.rows.unfolded.clear()
        self._aim = self.marked = None
        self._looked_for, self.is_following = "", True

    # Where everything is

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self, aim: Aim | None = None, changed_from: int = 0) -> None:
        """Measure the entries near the visible part, and scroll: to the aim, to the end if the view
        follows it, or so that what is in sight stays where it is. Everything from row
        `changed_from` on is drawn again."""
        self._aim, height = aim or self._aim, self.size.height
        if not height or not self.is_attached:
            return
        aim, self._aim = self._aim or (None if self.is_following else self.in_sight()), None
        width = self.scrollable_size.width - 2 * PADDING - MARKER_CELLS
        width = min(max(1, width), PROSE_CELLS)
        self.rows.fit(Look(self.view, width, self.app.current_theme.dark))
        while True:
            top = self._top(aim, height)
            near = self.rows.between(top - height, top + 2 * height)
            if not self.rows.measure(near):
                break
        self._arranged_for, total = self.size, self.rows.tops[-1]
        self.is_following = self.is_following or total <= height
        self.virtual_size = Size(self.size.width, total)
        bar = self.vertical_scrollbar
        bar.window_virtual_size, bar.window_size = total, height
        if top != self.scroll_offset.y:
            # Not by a scroll, which the reader does.
            self.set_reactive(Widget.scroll_y, float(top))
            self.set_reactive(Widget.scroll_target_y, float(top))
            bar.position = top
        is_at_end = self.scroll_offset.y >= self.max_scroll_y
        if is_at_end:
            self.has_new_below = False
        # At the end, every new row would draw the scroll bar again.
        visibility = "hidden" if is_at_end else "visible"
        if self.styles.scrollbar_visibility != visibility:
            self.styles.scrollbar_visibility = visibility
        first_row = top - max(0, height - total)
        below = max(0, changed_from - first_row) if first_row == self.first_row else 0
        self.first_row = first_row
        if below < height:
            self.refresh(Region(0, below, self.size.width, height - below))

    def _top(self, aim: Aim | None, height: int) -> int:
        """The row at the upper edge of the view. `height` is that of the view, in rows."""
        end = max(0, self.rows.tops[-1] - height)
        if aim is None or aim.key not in self.rows.place_of:
            return end if self.is_following else min(self.scroll_offset.y, end)
        place = self.rows.place_of[aim.key]
        row = self.rows.drawn[place].row_of(aim.span) if aim.span else aim.row
        row = min(self.rows.tops[place] + row, self.rows.tops[place + 1] - 1)
        return max(0, min(row - aim.below_edge, end))

    def in_sight(self) -> Aim | None:
        """The entry at the upper edge of the view, and the row of it that is at the edge."""
        if not self.rows.drawn:
            return None
        top = max(0, self.first_row)
        place = self.rows.place_at(top)
        return Aim(self.rows.drawn[place].entry.key, top - self.rows.tops[place])

    def go(self, aim: Aim) -> None:
        """Scroll to a target, unless all rows fit on the screen."""
        self.is_following = False
        self._arrange(aim)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        # The reader has scrolled.
        super().watch_scroll_y(old_value, new_value)
        self.is_following = round(new_value) >= self.max_scroll_y
        self.first_row = round(new_value)
        self._arrange()

    def action_scroll_home(self) -> None:
        if self.rows.drawn:
            self.go(Aim(self.rows.drawn[0].entry.key))

    def action_scroll_end(self) -> None:
        self.is_following, self._aim = True, None
        self._arrange()

    def scroll_to(self, *place: Any, **options: Any) -> None:
        # An animation would go on to its old target after a measurement has moved the rows.
        super().scroll_to(*place, **{**options, "animate": False})

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()
        self._kept_ground, self._arranged_for = None, Size(0, 0)
        self._drawn_rows_changed()

    def watch_view(self) -> None:
        # The views number lines and characters differently.
        self._drop_selection()
        self._arrange()

    # What is seen

    def reveal(
        self,
        turn: TurnId,
        span: tuple[int, int] | None = None,
        *,
        in_reasoning: bool = False,
        row: int | None = None,
    ) -> None:
        """Scroll to a turn of the path, so that it begins in this row of the view, or by default at
        a third of its height, and mark the passage of its text that begins and ends at `span`. The
        next call removes the mark."""
        self.unmark()
        key = self._key_of(turn, in_reasoning=in_reasoning or span is None)
        if key is None:
            return
        if span is not None:
            self.marked = key, span
            if in_reasoning and key not in self.rows.unfolded:
                self._turn_fold(key)
            self._drawn_rows_changed()
        self.go(Aim(key, 0, span, self.size.height // 3 if row is None else row))

    def _key_of(self, turn: TurnId, *, in_reasoning: bool) -> str | None:
        """The key of the entry with the answer of a turn, or with its reasoning, or of the other if
        there is only that."""
        keys = [f"turn {turn}", f"thought {turn}"]
        keys = keys[::-1] if in_reasoning else keys
        return next((key for key in keys if key in self.rows.place_of), None)

    def row_in_sight(self, turn: TurnId) -> int | None:
        """The row of the view in which a turn begins; None if its beginning is out of sight."""
        key = self._key_of(turn, in_reasoning=True)
        top = self.rows.tops[self.rows.place_of[key]] if key is not None else -1
        row = top - self.first_row
        return row if 0 <= row < self.size.height else None

    def look_for(self, words: str) -> None:
        """Underline these words in all turns, whatever their case and accents."""
        self._looked_for = folded(words) if words.strip() else ""
        self._drawn_rows_changed()

    def unmark(self) -> None:
        if self.marked is not None:
            self.marked = None
            self._drawn_rows_changed()

    def _drawn_rows_changed(self) -> None:
        for drawn in self.rows.drawn:
            drawn.strips.clear()
        self.refresh()

    # Drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        # Textual's cache of lines is of no use: it goes by the rows of the screen, and a new row
        # of a reply moves all of them.
        if self._arranged_for != self.size:
            self._arrange()
        row, count = self.first_row + crop.y, crop.height
        blank = self._filtered(Strip.blank(self.size.width, self._ground[0]))
        strips = [blank] * min(count, -row)
        rows, row, end = self.rows, max(0, row), row + count
        place = rows.place_at(row)
        while row < min(end, rows.tops[-1]):
            drawn, top, below = self.rows.drawn[place], rows.tops[place], rows.tops[place + 1]
            wanted = range(row - top, min(end, below) - top)
            missing = [y for y in wanted if y not in drawn.strips]
            highlights = self._highlights(place) if missing else ()
            for y in missing:
                drawn.strips[y] = self._filtered(self._strip(place, y, highlights))
            strips += (drawn.strips[y] for y in wanted)
            row, place = below, place + 1
        strips += [blank] * (count - len(strips))
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """Row `y` of the view, for the selection by mouse: the offset of a cell is its place in the
        text of an entry, and the place of that. It costs more, as no two cells have one style."""
        if not self.rows.drawn:
            return Strip.blank(self.size.width, self.rich_style)
        row = self.first_row + y
        place = self.rows.place_at(row)
        segments = []
        for piece, style in self._row(place, row - self.rows.tops[place], self._highlights(place)):
            for shown in [piece.shown] if piece.is_literal else piece.shown:
                at = Style.from_meta({"offset": (piece.start, place)})
                segments.append(Segment(shown, style + at))
            segments.append(Segment("", Style.from_meta({"offset": (piece.stop, place)})))
        return Strip(segments).adjust_cell_length(self.size.width, self._ground[0])

    @property
    def _ground(self) -> tuple[Style, Color]:
        """The style where no entry is, and its background; Textual searches for them each time."""
        if self._kept_ground is None:
            self._kept_ground = self.rich_style, self.background_colors[1]
        return self._kept_ground

    def _filtered(self, strip: Strip) -> Strip:
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self._ground[1])
        return strip

    def _strip(self, place: int, y: int, highlights: Sequence[Highlight]) -> Strip:
        drawn = self.rows.drawn[place]
        strip = Strip(
            [Segment(piece.shown, style) for piece, style in self._row(place, y, highlights)]
        )
        if y < drawn.height - MARGIN:
            right = self.scrollable_size.width - PADDING
            strip = strip.adjust_cell_length(right, self._style(drawn, TEXT))
        return strip.adjust_cell_length(self.size.width, self._ground[0])

    def _row(
        self, place: int, y: int, highlights: Sequence[Highlight]
    ) -> Iterator[tuple[Piece, Style]]:
        """What stands in row `y` of the entry at an index, with its style."""
        drawn, ground = self.rows.drawn[place], self._ground[0]
        row = drawn.text_row(y)
        if not 0 <= y < drawn.height - MARGIN:
            at = len(drawn.body.text) if y > 0 else 0
            yield Piece(" " * self.size.width, "", at, at), ground
            return
        # Without a place, a selection that begins on the marker would begin at the row's end.
        at = row[0].start if row else 0
        yield Piece(" " * PADDING, "", at, at), ground
        marker = KINDS[drawn.entry.kind][0] if y == 0 else " "
        yield Piece(f"{marker} ", _MARKER, at, at), self._style(drawn, _MARKER)
        if row is None:
            yield from self._siblings(drawn)
        for piece in row or ():
            look = piece.style
            if isinstance(look, str):
                style = self._style(drawn, look)
            else:
                style = self._style(drawn, TEXT) + look
            yield from _highlighted(piece, style, highlights)

    def _siblings(self, drawn: DrawnEntry) -> Iterator[tuple[Piece, Style]]:
        """The number of a turn among its siblings, between arrows to the others."""
        assert drawn.entry.place is not None
        number, count = drawn.entry.place
        style = self._style(drawn, _PLACE)
        for text, by in (("◂ ", -1), (f"{number}/{count}", 0), (" ▸", 1)):
            is_end = not 0 < number + by <= count
            does = {"@click": f"screen.step_of({drawn.entry.turn}, {by})"} if by else {}
            more = Style(dim=True) if is_end else Style.from_meta(does)
            yield Piece(text, _PLACE, 0, 0), style + more

    def _highlights(self, place: int) -> list[Highlight]:
        """What of the text of the entry at an index is selected, marked or looked for."""
        drawn = self.rows.drawn[place]
        found: list[Highlight] = []
        if selected := self.text_selection and self.text_selection.get_span(place):
            start, stop = selected
            # Only the background: the selection's text colour would hide those of the origins.
            ground = Style(bgcolor=self.selection_style.bgcolor)
            found.append((start, len(drawn.body.text) if stop == -1 else stop, ground))
        if self._looked_for and drawn.entry.turn is not None:
            text = folded(drawn.body.text)
            found += ((*one, _FOUND) for one in places(self._looked_for, text))
        if self.marked is not None and self.marked[0] == drawn.entry.key:
            found.append((*self.marked[1], _MARKED))
        return found

    # Styles

    def _style(self, drawn: DrawnEntry, name: str) -> Style:
        entry = drawn.entry
        is_selected = entry.turn is not None and entry.turn == self.selected
        key = entry.kind, name, is_selected
        if key in self._styles:
            return self._styles[key]
        _, marker, text = KINDS[entry.kind]
        ground = "$surface" if entry.kind == "question" else "$background"
        ground = _SELECTED if is_selected else ground
        own = {**_LOOKS, TEXT: text, _MARKER: f"{marker} reverse" if is_selected else marker}
        ink, *formats = name.split()
        look = own.get(ink) or token_look(self.app, ink)
        for one in formats:
            ground = _CODE_GROUND if one == CODE else ground
            look = f"{_FORMATS.get(one, '')} {look}"
        style = (self.visual_style + VisualStyle.parse(f"{look} on {ground}")).rich_style
        style = style + Style.from_meta({COPY: True}) if name == COPY else style
        self._styles[key] = style
        return style

    # What the reader does

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        if not self.rows.drawn:
            return None
        start, end = selection
        last = len(self.rows.drawn) - 1
        texts: list[str] = []
        for place in range(start.y if start else 0, 1 + min(last, end.y if end else last)):
            span = selection.get_span(place)
            assert span is not None
            text = self.rows.drawn[place].body.text
            texts.append(text[span[0] : len(text) if span[1] == -1 else span[1]])
        return "\n".join(texts), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._drawn_rows_changed()

    def _drop_selection(self) -> None:
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()

    def on_click(self, event: events.Click) -> None:
        row = self.first_row + event.y
        if self.text_selection is not None or not 0 <= row < self.rows.tops[-1]:
            return
        event.stop()
        place = self.rows.place_at(row)
        drawn = self.rows.drawn[place]
        if event.chain == 2:
            # Textual selects all that a widget has.
            event.prevent_default()
            whole = Selection(Offset(0, place), Offset(len(drawn.body.text), place))
            self.screen.selections = {self: whole}
        text_row = drawn.text_row(row - self.rows.tops[place])
        # The character of the text that was clicked; None where no text is.
        at = place_at(text_row, event.x - PADDING - MARKER_CELLS) if text_row else None
        if "@click" in event.style.meta:
            return
        entry, text = drawn.entry, drawn.body.text
        is_copy = COPY in event.style.meta
        code = code_ending_at(text, at) if is_copy and at is not None else None
        is_reply = entry.recording is not None
        address = link_at(text, at) if is_reply and at is not None else None
        if code is not None:
            self._copy_block(code)
        elif address is not None:
            self.post_message(self.LinkChosen(address))
        elif entry.kind == "thought":
            self._turn_fold(entry.key)
        elif entry.turn is not None:
            round_ = drawn.round_at(at) if at is not None else None
            if round_ is not None and entry.turn == self.selected:
                self.post_message(self.RoundChosen(entry.turn, round_))
            else:
                self.selected = None if entry.turn == self.selected else entry.turn

    def _turn_fold(self, key: str) -> None:
        """Fold or unfold a thought. While it is being written it stays unfolded."""
        place = self.rows.place_of[key]
        if self.rows.drawn[place].entry.note is None:
            return
        self._drop_selection()
        aim = None if self.is_following else self.in_sight()
        self.rows.fold(place)
        self._arrange(aim)

    def fold_thought(self) -> None:
        keys = [one.entry.key for one in self.rows.drawn if one.entry.kind == "thought"]
        if keys:
            self._turn_fold(keys[-1])
        else:
            self.notify("No reply has reasoning yet.")

    def watch_selected(self) -> None:
        self._drawn_rows_changed()

    def select(self, turn: TurnId) -> None:
        self.selected = turn
        self.reveal(turn)

    def take_focus(self) -> None:
        """Take the focus, as a turn is selected by a key."""
        self.can_focus = True
        self.screen.set_focus(self)

    def on_blur(self) -> None:
        self.can_focus = False

    def copy_code(self) -> None:
        """Copy the last code block; called again, the one before it."""
        found = self._step_back(code_blocks)
        if found is None:
            self.notify("There is no code block, or none before it.", severity="warning")
        else:
            self._copy_block(found)

    def open_link(self) -> None:
        """Ask to open the last link; called again, the one before it."""
        address = self._step_back(links)
        if address is None:
            self.notify("There is no link, or none before it.", severity="warning")
        else:
            self.post_message(self.LinkChosen(address))

    def _step_back(self, find: Callable[[str], Sequence[Item]]) -> Item | None:
        """The last of what is found in all replies; called again, the one before it. Behind the
        first one comes None, and after that, or when the entries have changed, the last."""
        drawn = self.rows.drawn
        began_with, left = self._steps.pop(find, (None, iter(())))
        if began_with is not drawn:
            entries = (one.entry for one in reversed(drawn))
            replies = (one.recording for one in entries if one.kind == "reply" and one.recording)
            left = (item for one in replies for item in reversed(find(neutralise(one.text))))
        item = next(left, None)
        if item is not None:
            self._steps[find] = drawn, left
        return item

    def _copy_block(self, code: Code) -> None:
        lines = code.text.splitlines()
        first = next(filter(str.strip, lines), "").strip()
        count, language = wording.plural(len(lines), "line"), code.language or "code"
        desktop.copy(self.app, code.text, f"{count} of {language}, “{wording.fitting(first, 40)}”")


def _highlighted(
    piece: Piece, style: Style, highlights: Sequence[Highlight]
) -> Iterator[tuple[Piece, Style]]:
    size, cuts = len(piece.shown), {0, len(piece.shown)}
    if piece.is_literal:
        places = (place - piece.start for span in highlights for place in span[:2])
        cuts.update(place for place in places if 0 < place < size)
    for begin, end in itertools.pairwise(sorted(cuts)):
        part, own = piece.part(begin, end), style
        for start, stop, more in highlights:
            if max(start, part.start) < min(stop, part.stop):
                own += more
        yield part, own
