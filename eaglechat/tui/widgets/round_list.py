"""The rounds of a reply as they come, a row each: what was kept, and which guess was replaced."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.strip import Strip

from eaglechat.chat.recording import Recording
from eaglechat.tui.commands.bindings import bindings_of, moves
from eaglechat.tui.texts.wording import visible
from eaglechat.tui.themes import REJECTED
from eaglechat.tui.widgets.transcript.reply import ReplyEntry
from eaglechat.tui.widgets.transcript.token_styles import GUESSED, TokenStyled
from eaglechat.wire.records import Round, Token

_NUMBER_CELLS = 5
_ROWS_KEPT = 200


class RoundList(TokenStyled, can_focus=True):
    """The newest round is at the bottom. While the list has the focus, one row is the cursor."""

    BINDINGS = [
        *bindings_of("list"),
        *moves({"up": "go(-1)", "down": "go(1)"}),
    ]
    COMPONENT_CLASSES = {"rounds--faint", "rounds--cursor"}
    DEFAULT_CSS = """
    RoundList > .rounds--faint {
        color: $foreground-muted;
    }
    RoundList > .rounds--cursor {
        background: $primary 25%;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._recording: Recording | None = None
        self._count = 0
        self._cursor: int | None = None
        """The round that keys work on; None for the newest, also when others come."""
        self._last = -1
        """The round in the bottom row."""
        self._strips: LRUCache[int, tuple[Round, Strip]] = LRUCache(_ROWS_KEPT)
        """The rows without the cursor: with every new round all move."""

    def show(self, recording: Recording | None) -> None:
        """Show the rounds of a recording as far as there are any."""
        count = len(recording.rounds) if recording else 0
        if recording is self._recording and count == self._count:
            return
        if recording is not self._recording or count < self._count:
            self._cursor = None
        self._recording, self._count = recording, count
        if self._cursor is None:
            self._last = count - 1
        self.refresh()

    def action_go(self, by: int) -> None:
        newest = self._count - 1
        row = max(0, self._chosen + by)
        self._cursor = row if row < newest else None
        # Upwards the list moves when the cursor leaves it.
        self._last = max(min(self._last, row + self.size.height - 1), row)
        self._last = min(self._last, newest)
        self.refresh()

    @property
    def _chosen(self) -> int:
        return self._count - 1 if self._cursor is None else self._cursor

    def action_submit(self) -> None:
        self._look_inside(self._chosen)

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        self._look_inside(self._round_in(event.get_content_offset_capture(self).y))

    def on_mouse_scroll_up(self) -> None:
        self.action_go(-3)

    def on_mouse_scroll_down(self) -> None:
        self.action_go(3)

    def _look_inside(self, index: int) -> None:
        if self._recording is not None and 0 <= index < self._count:
            self.post_message(ReplyEntry.RoundChosen(self._recording, index))

    def _round_in(self, y: int) -> int:
        return self._last - (self.size.height - 1 - y)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def on_resize(self) -> None:
        self._strips.clear()
        self._last = max(self._last, min(self._count, self.size.height) - 1)

    def render_line(self, y: int) -> Strip:
        index, width = self._round_in(y), self.size.width
        if self._recording is None or not 0 <= index < self._count:
            return Strip.blank(width, self.rich_style)
        round_ = self._recording.rounds[index]
        drawn, strip = self._strips.get(index) or (None, Strip.blank(width))
        if drawn is not round_:
            segments = [Segment(text, style) for text, style in self._drawn(round_)]
            strip = Strip(segments)
            if strip.cell_length > width:
                faint = self.get_component_rich_style("rounds--faint")
                strip = Strip([*strip.crop(0, width - 1), Segment("…", faint)])
            strip = strip.adjust_cell_length(width, self.rich_style)
            self._strips[index] = round_, strip
        if self.has_focus and index == self._chosen:
            ground = self.get_component_rich_style("rounds--cursor").bgcolor
            styled = (
                (text, (style or Style()) + Style(bgcolor=ground)) for text, style, _ in strip
            )
            return Strip(Segment(text, style) for text, style in styled)
        return strip

    def _drawn(self, round_: Round) -> Iterator[tuple[str, Style]]:
        faint, own = self.get_component_rich_style("rounds--faint"), self.rich_style
        guessed = self.get_component_rich_style(f"token--{GUESSED}")
        rejected = round_.rejected
        mark = "✗" if rejected is not None else "✓" if round_.n_accepted else "·"
        yield f"{round_.index + 1:>{_NUMBER_CELLS},} {mark} ", faint
        kept, last = round_.tokens[: round_.n_accepted], round_.tokens[round_.n_accepted :]
        if kept:
            yield f"{_shown(kept)} ", guessed
        if rejected is not None:
            yield (
                visible((rejected.text or "a token").strip(" ")),
                self.get_component_rich_style(f"token--{REJECTED}"),
            )
            yield " → ", faint
        yield _shown(last), own


def _shown(tokens: tuple[Token, ...]) -> str:
    return visible("".join(token.text for token in tokens).strip(" "))
