"""A scroll view that has widgets only for entries near the visible part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

from textual.containers import VerticalScroll
from textual.geometry import Offset, Region, Size, Spacing
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.reactive import Reactive
from textual.scrollbar import ScrollBar
from textual.widget import Widget

from eaglechat.tui.widgets.transcript.entry import TranscriptEntry
from eaglechat.tui.widgets.transcript.rows import MARGIN, Rows


@dataclass(frozen=True)
class Aim:
    """Where to scroll to: row `row` of the entry `key`, or the row of a character of its text. It
    is shown `below_edge` rows below the upper edge of the view."""

    key: str
    row: int = 0
    character: int | None = None
    below_edge: int = 0


class RowScroll(VerticalScroll):
    """Scrolls through the rows of all entries, whether they have a widget or not.

    It stays at the last row as text is added. It stops doing so when the reader scrolls up, and
    starts again when the reader is back at the end.
    """

    # For the reason given in TranscriptEntry. A scrollbar that appears or disappears asks for its
    # own layout.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows = Rows()
        self.made: dict[str, TranscriptEntry] = {}
        """The entries that have a widget, by their keys."""
        self.aim: Aim | None = None
        """Where the next layout scrolls to; None leaves the view where it is."""
        self._by_rows = _ByRows()

    def on_mount(self) -> None:
        self.anchor()
        # While the view follows the newest text, Textual does not call `watch_scroll_y`.
        self.add_class("-at-end")

    @abstractmethod
    def fill(self) -> None:
        """Make widgets for the entries near the visible part."""

    @property
    def layout(self) -> Layout:
        return self._by_rows

    def placements(self, size: Size, children: Container[Widget]) -> Iterator[WidgetPlacement]:
        """The places of the mounted widgets. It scrolls so that the visible rows stay where they
        are on the screen, although heights above them change."""
        viewport, width = self.app.viewport_size, size.width
        aim = self.aim or (None if self.is_following else self.in_sight())
        heights = {
            key: MARGIN + entry.get_content_height(size, viewport, width)
            for key, entry in self.made.items()
            if entry in children
        }
        self.rows.count(width, heights)
        if aim is not None and aim.key in self.rows.place_of:
            self._hold(aim, size.height)
        if self._has_gap(size.height):
            self.call_later(self.fill)
        else:
            self.aim = None
        end, place_of = self.rows.total, self.rows.place_of
        lowest = max(heights, key=lambda key: place_of[key], default=None)
        for key, height in heights.items():
            top = self.rows.top(key)
            # The margin of the lowest widget stands for all entries below it that have no widget,
            # so that the scrollable height is that of all entries.
            below = end - (top + height - MARGIN) if key == lowest else MARGIN
            margin = Spacing(0, 0, below, 0)
            region = Region(0, top, width, height - MARGIN)
            yield WidgetPlacement(region, Offset(), margin, self.made[key])

    def _has_gap(self, height: int) -> bool:
        top = self.top_in_sight(height)
        seen = self.rows.between(top, top + height)
        return any(self.rows.entries[place].key not in self.made for place in seen)

    @property
    def is_following(self) -> bool:
        """Whether the view stays at the end as text is added."""
        return self._anchored and not self._anchor_released

    def in_sight(self) -> Aim | None:
        """The entry at the upper edge of the view, and the row of it that is at the edge."""
        if not self.rows.entries:
            return None
        key = self.rows.entries[self.rows.place_at(self.scroll_y)].key
        return Aim(key, round(self.scroll_y) - self.rows.top(key))

    def _hold(self, aim: Aim, height: int) -> None:
        """Set the scroll position for `aim` during a layout, before anything is drawn. `height` is
        that of the view, in rows."""
        row, made = aim.row, self.made.get(aim.key)
        if made is not None and aim.character is not None:
            row = made.row_of(aim.character)
        top = self.rows.top(aim.key) + row - aim.below_edge
        top = max(0, min(top, self.rows.total - height))
        if top != self.scroll_y:
            self.set_reactive(Widget.scroll_y, top)
            self.set_reactive(Widget.scroll_target_y, top)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, top)
            self.call_later(self._scrolled)

    # Scrolling

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._scrolled()

    def _scrolled(self) -> None:
        self.set_class(self.is_vertical_scroll_end, "-at-end")
        self.fill()

    def _scroll_to(self, x: float | None = None, y: float | None = None, **options: Any) -> bool:
        self.aim = None
        # An animation would go on to its old target after a layout has moved the rows.
        return super()._scroll_to(x, y, **{**options, "animate": False})

    def action_scroll_home(self) -> None:
        if self.rows.entries:
            self.go(Aim(self.rows.entries[0].key))

    def action_scroll_end(self) -> None:
        self.aim = None
        self.anchor()
        self.fill()
        self.arrange_anew()

    def top_in_sight(self, height: int) -> float:
        """The first row that will be visible after the next layout. `height` is that of the view,
        in rows."""
        if self.aim is not None and self.aim.key in self.rows.place_of:
            return self.rows.top(self.aim.key) + self.aim.row - self.aim.below_edge
        if self.is_following:
            return self.rows.total - height
        return float(self.scroll_y)

    def go(self, aim: Aim) -> None:
        """Scroll to a target, unless all rows fit on the screen."""
        if self.rows.total > self.size.height:
            self.release_anchor()
            self.aim = aim
            self.fill()
            self.arrange_anew()

    def arrange_anew(self) -> None:
        """Lay out with the next frame, even if no widget was mounted or removed."""
        # `refresh` discards only the cached layouts of the parents.
        self._clear_arrangement_cache()
        self.refresh(layout=True)


class _ByRows(Layout):
    """Places the children of a RowScroll by its `placements`."""

    name = "by-rows"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, RowScroll)
        return [*parent.placements(size, set(children))]
