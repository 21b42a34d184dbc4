"""What the chat screen does with what was said long ago: find it."""

from __future__ import annotations

from eaglechat.chat.conversation.turns import Question, Reply
from eaglechat.chat.history.reading import Passage
from eaglechat.chat.search.query import parse
from eaglechat.tui.screens.chat.base import ChatBase


class Keeping(ChatBase):
    """Shows passages of the chat."""

    def show_passage(self, place: Passage | None) -> None:
        """Show a place that was found, on whichever branch it is."""
        if place is None or not self.session.choose(place.turn):
            return
        self.draw()
        turn = self.session.turns.find(place.turn)
        text = turn.text if isinstance(turn, Question | Reply) else ""
        marks = parse(place.words).marks(text)
        self.transcript.reveal(place.turn, marks[0] if marks else None)
