"""The conversation on the screen: questions, notices, and replies while they are generated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip

from eaglechat.chat.conversation.turns import TurnId
from eaglechat.chat.recording import Recording
from eaglechat.settings.model import View
from eaglechat.tui.commands.bindings import turn_bindings
from eaglechat.tui.services import clipboard
from eaglechat.tui.widgets.transcript.entry import (
    NoticeEntry,
    QuestionEntry,
    TranscriptEntry,
    WindowMark,
    filtered,
)
from eaglechat.tui.widgets.transcript.markdown import Code, code_blocks, links
from eaglechat.tui.widgets.transcript.reply import (
    CodeChosen,
    LinkChosen,
    ReplyEntry,
    ThoughtEntry,
)
from eaglechat.tui.widgets.transcript.rows import Rows
from eaglechat.tui.widgets.transcript.scrolling import Aim, RowScroll
from eaglechat.wire.neutral import neutralise
from eaglechat.words import timeline, wording

Item = TypeVar("Item")

PAGES_MADE, PAGES_KEPT = 1, 3
"""Entries get widgets up to PAGES_MADE screens above and below the visible part, and lose them
beyond PAGES_KEPT screens."""


class Transcript(RowScroll):
    """The entries of a chat, in order. Only those near the visible part have widgets.

    It stays at the newest text until the reader scrolls up, and again after the reader has returned
    to the bottom or has asked something. The scrollbar is shown while the reader is not at the
    bottom.
    """

    BINDINGS = turn_bindings()
    can_focus = False
    """It has the focus only while a turn is selected by a key: letters are commands then."""
    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        padding: 0 1;
        scrollbar-gutter: stable;
        scrollbar-size-vertical: 1;
        background: $background;
    }
    /* The scrollbar has no width here: for every new row, drawing it would cost as much as drawing
       the text, and hiding it would make Textual search the screen a second time. The padding takes
       the place of its column, so that no text wraps anew. */
    Transcript.-at-end {
        scrollbar-size-vertical: 0;
        scrollbar-gutter: auto;
        padding: 0 2 0 1;
    }
    """

    view: reactive[View] = reactive[View]("live")
    """How replies are drawn."""

    selected: reactive[TurnId | None] = reactive(None)
    """The turn that commands work on; None for the last one."""

    has_new_below: reactive[bool] = reactive(False)
    """Whether text came after the reader had scrolled up, away from the end."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._unfolded: set[str] = set()
        """The keys of unfolded thoughts that have no widget now."""
        self._code, self._links = FromTheEnd[Code](), FromTheEnd[str]()
        self.marked: tuple[str, tuple[int, int]] | None = None
        """The key of the entry with the marked passage, and the passage's start and end in its
        text."""

    # Which entries there are

    def show(self, wanted: Sequence[timeline.Entry]) -> None:
        """Show these entries. Widgets of entries that are still there stay and draw what was
        added."""
        begun = [e for e in wanted if e.recording and e.note is None and self._is_begun(e)]
        if wanted and wanted[-1].key not in self.rows.place_of:
            self._grew()
        if not self.is_following:
            self.aim = self.aim or self.in_sight()
        self.rows.take(wanted)
        gone = [key for key in self.made if key not in self.rows.place_of]
        self._unmake([*gone, *(entry.key for entry in begun if entry.key in self.made)])
        for key, entry in self.made.items():
            said = wanted[self.rows.place_of[key]]
            entry.set_turn(said.turn, said.place)
            self.follow(said)
        if self.selected not in {entry.turn for entry in wanted}:
            self.selected = None
        if begun:
            self._follow_new_reply()
        self.fill()
        self.arrange_anew()

    def _is_begun(self, entry: timeline.Entry) -> bool:
        """Whether this entry, which is being written, was not being written before: it is new, or
        its reply is being continued."""
        place = self.rows.place_of.get(entry.key)
        return place is None or self.rows.entries[place].note is not None

    def follow(self, entry: timeline.Entry) -> None:
        """Draw what was added to the reply of this entry."""
        if entry.note is None:
            self._grew()
        made = self.made.get(entry.key)
        if isinstance(made, ReplyEntry) and not made.is_over:
            made.follow(entry.below())

    def _grew(self) -> None:
        self.has_new_below = not (self.is_following or self.has_class("-at-end"))

    def _scrolled(self) -> None:
        super()._scrolled()
        if self.has_class("-at-end"):
            self.has_new_below = False

    def clear(self) -> None:
        """Remove every entry, before another chat is shown."""
        self._unmake([*self.made])
        self.rows = Rows()
        self._unfolded.clear()
        self.aim = self.marked = None
        self.has_new_below = False
        self.anchor()

    @property
    def last_reply(self) -> Recording | None:
        """The newest reply, finished or not."""
        replies = (e.recording for e in reversed(self.rows.entries) if e.kind == "reply")
        return next(replies, None)

    # Widgets of entries

    def fill(self) -> None:
        """Make widgets for entries near the visible part, and remove widgets far from it."""
        if not self.is_attached:
            # Asked for by the last layout of a chat that is closed by now: nothing can be mounted.
            return
        height = self.size.height or self.app.size.height
        top = self.top_in_sight(height)
        near = self.rows.between(top - PAGES_MADE * height, top + (1 + PAGES_MADE) * height)
        self._make_missing(self.rows.entries[place] for place in near)
        if not self.screen.selections:
            kept = self.rows.between(top - PAGES_KEPT * height, top + (1 + PAGES_KEPT) * height)
            place_of = self.rows.place_of
            self._unmake([key for key in self.made if place_of[key] not in kept])

    def _make_missing(self, wanted: Iterable[timeline.Entry]) -> None:
        missing = [entry for entry in wanted if entry.key not in self.made]
        if not missing:
            return
        place_of = self.rows.place_of
        made = sorted(place_of[key] for key in self.made)
        behind = {place: self.made[self.rows.entries[place].key] for place in made}
        groups: dict[TranscriptEntry | None, list[TranscriptEntry]] = {}
        for entry in missing:
            place = place_of[entry.key]
            before = next((behind[other] for other in made if other > place), None)
            groups.setdefault(before, []).append(self._make(entry))
        for before, group in groups.items():
            self.mount(*group, before=before)

    def _make(self, entry: timeline.Entry) -> TranscriptEntry:
        made: TranscriptEntry
        if entry.recording is not None:
            kind = ThoughtEntry if entry.kind == "thought" else ReplyEntry
            made = kind(entry.recording, self.view, entry.below())
            if isinstance(made, ThoughtEntry) and entry.key in self._unfolded:
                made.fold(False)
        elif entry.kind == "question":
            made = QuestionEntry(entry.text)
        elif entry.kind == "window":
            made = WindowMark()
        else:
            made = NoticeEntry(entry.text, entry.kind)
        made.set_turn(entry.turn, entry.place)
        made.set_class(entry.turn is not None and entry.turn == self.selected, "-selected")
        if self.marked is not None and self.marked[0] == entry.key:
            made.mark(self.marked[1])
        if isinstance(made, ReplyEntry) and not made.is_over:
            made.follow(None)
        self.made[entry.key] = made
        return made

    def _unmake(self, keys: Sequence[str]) -> None:
        gone = [self.made.pop(key) for key in keys]
        for key, entry in zip(keys, gone, strict=True):
            if isinstance(entry, ThoughtEntry) and not entry.is_folded:
                self._unfolded.add(key)
        if gone:
            self.remove_children(gone)

    def _follow_new_reply(self) -> None:
        """Follow the reply that begins, and free the memory of the rows drawn so far."""
        for entry in self.made.values():
            entry.forget_drawn_rows()
        self.aim = None
        self.anchor()

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
        a third of its height, and mark the passage of its text that begins and ends at `span`. Its
        entry need not have a widget. The next call removes the mark."""
        self.unmark()
        key = self._key_of(turn, in_reasoning=in_reasoning or span is None)
        if key is None:
            return
        if span is not None:
            self.marked = key, span
            if in_reasoning:
                self._unfolded.add(key)
            made = self.made.get(key)
            if in_reasoning and isinstance(made, ThoughtEntry):
                made.fold(False)
            if made is not None:
                made.mark(span)
        row = self.size.height // 3 if row is None else row
        self.go(Aim(key, 0, span[0] if span else None, row))

    def _key_of(self, turn: TurnId, *, in_reasoning: bool) -> str | None:
        """The key of the entry with the answer of a turn, or with its reasoning, or of the other if
        there is only that."""
        keys = [f"turn {turn}", f"thought {turn}"]
        keys = keys[::-1] if in_reasoning else keys
        return next((key for key in keys if key in self.rows.place_of), None)

    def row_in_sight(self, turn: TurnId) -> int | None:
        """The row of the view in which a turn begins; None if its beginning is out of sight."""
        key = self._key_of(turn, in_reasoning=True)
        row = self.rows.top(key) - round(self.scroll_y) if key is not None else -1
        return row if 0 <= row < self.size.height else None

    def unmark(self) -> None:
        """Remove the mark of a passage."""
        if self.marked is not None and (made := self.made.get(self.marked[0])) is not None:
            made.mark(None)
        self.marked = None

    def render_lines(self, crop: Region) -> list[Strip]:
        # The background where no entry is. Textual would draw it again, line by line, for every new
        # row of a reply.
        blank = Strip.blank(crop.width, self.visual_style.rich_style)
        return filtered(self, [blank]) * crop.height

    # What the reader does

    def watch_selected(self) -> None:
        for entry in self.made.values():
            entry.set_class(entry.turn is not None and entry.turn == self.selected, "-selected")

    def select(self, turn: TurnId) -> None:
        """Select a turn and scroll to it."""
        self.selected = turn
        self.reveal(turn)

    def take_focus(self) -> None:
        """Take the focus, as a turn is selected by a key."""
        self.can_focus = True
        self.screen.set_focus(self)

    def on_blur(self) -> None:
        self.can_focus = False

    def fold_thought(self) -> None:
        """Fold or unfold the latest reasoning."""
        keys = [entry.key for entry in self.rows.entries if entry.kind == "thought"]
        if not keys:
            self.notify("No reply has reasoning yet.")
            return
        made = self.made.get(keys[-1])
        if isinstance(made, ThoughtEntry):
            made.fold(not made.is_folded)
        else:
            self._unfolded ^= {keys[-1]}

    def copy_reply(self) -> None:
        """Copy the last reply, as far as it has been generated, without rejected tokens."""
        reply = self.last_reply
        if reply is None or not reply.text:
            self.notify("There is no reply to copy yet.", severity="warning")
            return
        clipboard.copy(self.app, neutralise(reply.text), "the last reply")

    def copy_code(self) -> None:
        """Copy the last code block; called again, the one before it."""
        found = self._code.step(self.rows.entries, code_blocks)
        if found is None:
            self.notify("There is no code block, or none before it.", severity="warning")
        else:
            self._copy_block(found)

    def open_link(self) -> None:
        """Ask to open the last link; called again, the one before it."""
        address = self._links.step(self.rows.entries, links)
        if address is None:
            self.notify("There is no link, or none before it.", severity="warning")
        else:
            self.post_message(LinkChosen(address))

    def on_code_chosen(self, event: CodeChosen) -> None:
        event.stop()
        self._copy_block(event.code)

    def _copy_block(self, code: Code) -> None:
        clipboard.copy(self.app, code.text, _code_in_words(code))

    def watch_view(self) -> None:
        self.rows.forget()
        for entry in self.made.values():
            if isinstance(entry, ReplyEntry):
                entry.view = self.view


class FromTheEnd(Generic[Item]):
    """Steps back through the code blocks or links of all replies, from the last one. It begins at
    the end again when the entries have changed."""

    def __init__(self) -> None:
        self._entries: Sequence[timeline.Entry] = ()
        self._rest: list[Item] = []
        self._place = 0

    def step(
        self, shown: Sequence[timeline.Entry], find: Callable[[str], Sequence[Item]]
    ) -> Item | None:
        """The item before the one returned last. Before the first item it returns None once, and
        then begins at the end again."""
        if shown is not self._entries:
            self._entries, self._place, self._rest = shown, len(shown), []
        while not self._rest and self._place:
            self._place -= 1
            entry = shown[self._place]
            if entry.kind == "reply" and entry.recording is not None:
                self._rest = [*find(neutralise(entry.recording.text))]
        if self._rest:
            return self._rest.pop()
        self._entries = ()
        return None


def _code_in_words(code: Code) -> str:
    """A code block by its length, language and first line."""
    count = wording.plural(len(code.text.splitlines()), "line")
    first = next((line.strip() for line in code.text.splitlines() if line.strip()), "")
    return f"{count} of {code.language or 'code'}, “{wording.fitting(first, 40)}”"
