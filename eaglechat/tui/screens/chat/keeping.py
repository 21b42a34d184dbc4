"""What the chat screen does with what was said: find it, here and in other chats, and export it."""

from __future__ import annotations

from textual import on

from eaglechat.chat.conversation.turns import Question, Reply
from eaglechat.chat.history.saved_chat import Passage
from eaglechat.chat.search import Spot, parse, spots
from eaglechat.chat.writing.question import shown
from eaglechat.tui.export.formats import Format
from eaglechat.tui.navigation import OpenExport
from eaglechat.tui.screens.chat.base import ChatBase
from eaglechat.tui.widgets.find_bar import FindBar
from eaglechat.tui.widgets.transcript.scrolling import Aim


class Keeping(ChatBase):
    """Shows passages of the chat, and writes it to other files."""

    _spots: list[Spot] = []
    _spot = 0
    _found_from: Aim | None = None
    _folded: dict[str, str] = {}
    """Texts of this chat as they are compared, while the line to find in is open."""
    """Where the reader was when looking began; None at the end of the chat."""

    def show_passage(self, place: Passage | None) -> None:
        """Show a place that was found, on whichever branch it is."""
        if place is None or not self.session.choose(place.turn):
            return
        self.draw()
        turn = self.session.turns.find(place.turn)
        if not isinstance(turn, Question | Reply):
            return
        query = parse(place.words)
        in_reasoning = not query.is_in(turn.text) and query.is_in(turn.reasoning)
        said = shown(turn.parts) if isinstance(turn, Question) else turn.text
        marks = query.marks(turn.reasoning if in_reasoning else said)
        self.transcript.reveal(place.turn, marks[0] if marks else None, in_reasoning=in_reasoning)

    # Finding in this chat

    def action_find(self) -> None:
        bar = self.query_one(FindBar)
        if bar.is_open:
            self.end_finding()
            return
        transcript = self.transcript
        self._folded = {}
        self._found_from = None if transcript.is_following else transcript.in_sight()
        bar.open()
        self._find(bar.text)

    @on(FindBar.Typed)
    def _find_typed(self, event: FindBar.Typed) -> None:
        self._find(event.text)

    def _find(self, typed: str) -> None:
        """Show the last place of all: what was said last is what one looks for most."""
        self._spots = spots(self.session.turns.path, typed, self._folded)
        self._spot = len(self._spots) - 1
        self._show_spot()

    @on(FindBar.Stepped)
    def _find_stepped(self, event: FindBar.Stepped) -> None:
        if self._spots:
            self._spot = (self._spot + event.by) % len(self._spots)
            self._show_spot()

    def _show_spot(self) -> None:
        bar = self.query_one(FindBar)
        if self._spots:
            spot = self._spots[self._spot]
            self.transcript.reveal(spot.turn, spot.span, in_reasoning=spot.in_reasoning)
            bar.say(f"{self._spot + 1:,} of {len(self._spots):,}")
        else:
            self.transcript.unmark()
            bar.say("not found" if bar.text.strip() else "")

    @on(FindBar.Closed)
    def _find_closed(self) -> None:
        """Back to where the reader was."""
        if self._found_from is None:
            self.transcript.scroll_end(animate=False)
            self.transcript.anchor()
        else:
            self.transcript.go(self._found_from)
        self.end_finding()

    def end_finding(self) -> None:
        """Close the line, and stay."""
        self.transcript.unmark()
        self.query_one(FindBar).close()
        self.prompt.take_focus()

    # Exporting

    def action_export(self, format: Format | None) -> None:
        if not self.session.turns:
            self.notify("There is nothing to export yet.")
        else:
            self.save()
            self.go(OpenExport(self.session.record.reader(), format))
