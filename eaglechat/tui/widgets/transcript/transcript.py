"""The conversation on the screen: what was said, and replies as they are generated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.reactive import Reactive, reactive
from textual.strip import Strip

from eaglechat.chat.conversation import entries
from eaglechat.chat.conversation.turns import TurnId
from eaglechat.tui.widgets.transcript.entry import TEXT, Entry, Run, filtered
from eaglechat.tui.widgets.transcript.reply import Reply, ReplyView
from eaglechat.tui.widgets.transcript.thought import Thought
from eaglechat.tui.widgets.transcript.wrapping import neutralise

MADE_AT_ONCE = 60
"""Entries: more than any screen shows, and few enough to be there at once."""


class UserEntry(Entry):
    """What the user said, as it was typed."""

    DEFAULT_CSS = """
    UserEntry {
        background: $surface;
        text-style: none;
    }
    UserEntry > .entry--marker {
        color: $accent;
    }
    """

    marker = ">"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def runs(self) -> Iterator[Run]:
        yield Run(self._text, TEXT)


class Notice(UserEntry):
    """What the app has to say about the conversation."""

    DEFAULT_CSS = """
    Notice {
        background: transparent;
        color: $text-muted;
    }
    Notice.-warning, Notice.-warning > .entry--marker {
        color: $text-warning;
    }
    Notice.-error, Notice.-error > .entry--marker {
        color: $text-error;
    }
    """

    MARKERS = {"information": "i", "warning": "!", "error": "x"}

    def __init__(self, text: str, severity: str) -> None:
        super().__init__(text)
        self.marker = self.MARKERS[severity]
        self.add_class(f"-{severity}")


class WindowMark(Entry):
    """Where the part of the conversation begins that is in the context."""

    DEFAULT_CSS = """
    WindowMark > .entry--marker {
        color: $text-muted;
    }
    """

    marker = "↑"

    def runs(self) -> Iterator[Run]:
        yield Run("Older messages are no longer in the context.", "note", copied=False)


class Transcript(VerticalScroll):
    """Entries in order, a short conversation at the bottom.

    It follows the newest text until the reader scrolls up, and again from when the reader is back
    at the bottom or says something. The scrollbar shows while the reader is not at the bottom.
    """

    DEFAULT_CSS = """
    Transcript {
        layout: stream;
        height: 1fr;
        padding: 0 1;
        scrollbar-gutter: stable;
        scrollbar-size-vertical: 1;
        background: $background;
    }
    /* For every new row, drawing it would cost as much as drawing the text, and hiding it a second
       search of the screen. Its column stays, so that nothing wraps anew. */
    Transcript.-at-end {
        scrollbar-size-vertical: 0;
        scrollbar-gutter: auto;
        padding: 0 2 0 1;
    }
    """

    show_rejected: reactive[bool] = reactive(True)
    """Show the first rejected draft token of a round, struck through."""
    token_colours: reactive[bool] = reactive(True)
    """Show where each token came from."""
    reading: reactive[bool] = reactive(False)
    """Show finished replies as Markdown instead of tokens."""

    selected: reactive[TurnId | None] = reactive(None)
    """The turn that commands work on, if one is chosen."""

    # As in an entry; a scrollbar that comes or goes lays out by itself.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._wanted: Sequence[entries.Entry] = ()
        self._first = 0
        """The first of them that is made; those before it are when the reader comes near."""
        self._shown: dict[str, Entry] = {}
        self._last_reply: str | None = None
        self._is_growing = False

    def on_mount(self) -> None:
        self.anchor()
        # Following the newest text moves the view without a word to `watch_scroll_y`.
        self.add_class("-at-end")

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.set_class(self.is_vertical_scroll_end, "-at-end")
        if new_value < self.size.height:
            self._grow_upwards()

    def render_lines(self, crop: Region) -> list[Strip]:
        # The empty ground; Textual would draw it anew, line by line, for every new row of a reply.
        blank = Strip.blank(crop.width, self.visual_style.rich_style)
        return filtered(self, [blank]) * crop.height

    @property
    def last_reply(self) -> Reply | None:
        """The newest reply, finished or not; a comparison is none."""
        reply = self._shown.get(self._last_reply or "")
        return reply if isinstance(reply, Reply) else None

    def show(self, wanted: Sequence[entries.Entry]) -> None:
        """Show these entries. Those that are shown already stay, and draw what was added."""
        keys = {entry.key for entry in wanted}
        for key in [key for key in self._shown if key not in keys]:
            self._shown.pop(key).remove()
        latest = max(0, len(wanted) - MADE_AT_ONCE)
        places = (place for place, entry in enumerate(wanted) if entry.key in self._shown)
        self._wanted, self._first = wanted, min(next(places, latest), latest)
        self._mount_missing(wanted[self._first :])
        for entry in wanted[self._first :]:
            self._shown[entry.key].stand(entry.turn, entry.place)
            self.follow(entry)
        if self.selected not in {entry.turn for entry in wanted}:
            self.selected = None
        self._mark_selected()
        self._last_reply = next((e.key for e in reversed(wanted) if e.kind == "reply"), None)
        if self._first:
            self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        """Make more where what is made leaves room above it."""
        if self.max_scroll_y == 0:
            self._grow_upwards()

    def _grow_upwards(self) -> None:
        if self._first and not self._is_growing:
            self._is_growing = True
            self.call_later(self._grow)

    async def _grow(self) -> None:
        """Make some of the entries before the first one; what is in sight stays there."""
        first, before = self._first, self._shown.get(self._wanted[self._first].key)
        self._first = max(0, first - MADE_AT_ONCE)
        top, is_at_end = before.virtual_region.y if before else 0, self.is_vertical_scroll_end
        made = [self._make(entry) for entry in self._wanted[self._first : first]]
        await self.mount(*made, before=before)
        self.call_after_refresh(self._keep_place, before, top, is_at_end)

    def _keep_place(self, before: Entry | None, top: int, is_at_end: bool) -> None:
        self._is_growing = False
        if before is not None and before.is_attached and not is_at_end:
            grown = before.virtual_region.y - top
            self.scroll_to(y=self.scroll_y + grown, animate=False, immediate=True)
        self._fill()

    def follow(self, entry: entries.Entry) -> None:
        """Draw what was added to a reply or comparison."""
        shown = self._shown.get(entry.key)
        if isinstance(shown, Reply):
            shown.follow(entry.note)

    def clear(self) -> None:
        """Remove every entry: the next ones are of another chat."""
        self._wanted, self._first = (), 0
        self._shown.clear()
        self.remove_children()

    def _mount_missing(self, wanted: Sequence[entries.Entry]) -> None:
        behind: Entry | None = None
        missing: list[Entry] = []
        for entry in reversed(wanted):
            shown = self._shown.get(entry.key)
            if shown is None:
                missing.insert(0, self._make(entry))
            else:
                self._mount_before(behind, missing)
                behind, missing = shown, []
        self._mount_before(behind, missing)

    def _mount_before(self, behind: Entry | None, missing: Sequence[Entry]) -> None:
        if missing:
            self.mount(*missing, before=behind)

    def _make(self, entry: entries.Entry) -> Entry:
        shown: Entry
        if entry.recording is not None:
            if entry.note is None:
                self._make_way()
            kind = Thought if entry.kind == "thought" else Reply
            shown = kind(entry.recording, self._reply_view(), entry.note)
        elif entry.kind == "question":
            shown = UserEntry(entry.text)
        elif entry.kind == "window":
            shown = WindowMark()
        else:
            shown = Notice(entry.text, entry.kind)
        self._shown[entry.key] = shown
        shown.stand(entry.turn, entry.place)
        return shown

    def _make_way(self) -> None:
        """A reply begins: follow it, and free what the ones before it have drawn."""
        for entry in self._shown.values():
            entry.forget_drawn_rows()
        self.anchor()

    def reveal(self, turn: TurnId, span: tuple[int, int] | None = None) -> None:
        """Scroll to a turn of the path, whether its entry is made or not, and mark a passage of
        its text: where it begins and ends. The mark goes with the next one, or with None."""
        place = next((i for i, e in enumerate(self._wanted) if e.turn == turn), None)
        if place is None:
            return
        if place < self._first:
            made = [self._make(entry) for entry in self._wanted[place : self._first]]
            self.mount(*made, before=self._shown[self._wanted[self._first].key])
            self._first = place
        entry = self._shown[self._wanted[place].key]
        self.call_after_refresh(self.scroll_to_widget, entry, animate=False)

    def watch_selected(self) -> None:
        self._mark_selected()
        if self.selected is not None:
            self.reveal(self.selected)

    def _mark_selected(self) -> None:
        for entry in self._shown.values():
            entry.set_class(entry.turn is not None and entry.turn == self.selected, "-selected")

    def fold_thought(self) -> None:
        """Fold or unfold the latest reasoning."""
        thoughts = [entry for entry in self._shown.values() if isinstance(entry, Thought)]
        if not thoughts:
            self.notify("No reply has reasoning yet.")
        else:
            thoughts[-1].fold(not thoughts[-1].is_folded)

    def copy_reply(self) -> None:
        """Copy the last reply, as far as it is generated, without rejected tokens."""
        reply = self.last_reply
        if reply is None or not reply.text:
            self.notify("There is no reply to copy yet.", severity="warning")
            return
        self.app.copy_to_clipboard(neutralise(reply.text))
        self.notify("Copied the last reply.")

    def watch_show_rejected(self) -> None:
        self._apply_view()

    def watch_token_colours(self) -> None:
        self._apply_view()

    def watch_reading(self) -> None:
        self._apply_view()

    def _reply_view(self) -> ReplyView:
        return ReplyView(self.show_rejected, self.token_colours, self.reading)

    def _apply_view(self) -> None:
        view = self._reply_view()
        for reply in self.query(Reply):
            reply.view = view
