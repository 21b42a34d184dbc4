"""Finding passages in the open chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eaglechat.chat.conversation.turns import Turn
from eaglechat.chat.search import Spot, spots
from eaglechat.tui.widgets.find_bar import FindBar
from eaglechat.tui.widgets.transcript.scrolling import Aim
from eaglechat.tui.widgets.transcript.transcript import Transcript


class ChatFinder:
    """Shows in the transcript what is typed in the find bar; `path` gives the turns to search."""

    def __init__(
        self, bar: FindBar, transcript: Transcript, path: Callable[[], Sequence[Turn]]
    ) -> None:
        self._bar, self._transcript, self._path = bar, transcript, path
        self._spots: list[Spot] = []
        self._shown = 0
        """The index of the spot that is shown."""
        self._opened_at: Aim | None = None
        """Where the reader was when the bar was opened; None at the end of the chat."""
        self._folded: dict[str, str] = {}
        """Texts of the chat with their case folded, kept while the bar is open."""

    @property
    def is_open(self) -> bool:
        return self._bar.is_open

    def open(self) -> None:
        self._folded = {}
        transcript = self._transcript
        self._opened_at = None if transcript.is_following else transcript.in_sight()
        self._bar.open()
        self.find(self._bar.text)

    def find(self, typed: str) -> None:
        """Show the last passage: what was said last is most often what is looked for."""
        self._spots = spots(self._path(), typed, self._folded)
        self._shown = len(self._spots) - 1
        self._show()

    def step(self, by: int) -> None:
        if self._spots:
            self._shown = (self._shown + by) % len(self._spots)
            self._show()

    def _show(self) -> None:
        if self._spots:
            spot = self._spots[self._shown]
            self._transcript.reveal(spot.turn, spot.span, in_reasoning=spot.in_reasoning)
            self._bar.say(f"{self._shown + 1:,} of {len(self._spots):,}")
        else:
            self._transcript.unmark()
            self._bar.say("not found" if self._bar.text.strip() else "")

    def go_back(self) -> None:
        """Scroll to where the reader was when the bar was opened."""
        if self._opened_at is None:
            self._transcript.scroll_end(animate=False)
            self._transcript.anchor()
        else:
            self._transcript.go(self._opened_at)

    def close(self) -> None:
        """Close the bar and stay at the passage that is shown."""
        self._transcript.unmark()
        self._bar.close()
