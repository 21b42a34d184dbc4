"""The line in which the user types what to find in the open chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.widgets import Input, Static

from eaglechat.chat.search import Spot, spots
from eaglechat.chat.turns import Turn
from eaglechat.tui.commands.keys import bindings_of, moves, run_own_key, with_keys
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.tui.widgets.transcript.transcript import Aim, Transcript


class FindBar(Input):
    """Shows in the transcript, passage by passage, what is typed. The screen shows it, and beside
    it `found`, while it has the class `-finding`."""

    BINDINGS = [*bindings_of("find"), *moves({"up": "step(-1)", "down": "step(1)"})]

    def __init__(
        self, transcript: Transcript, path: Callable[[], Sequence[Turn]], prompt: Prompt
    ) -> None:
        """`path` gives the turns to search. When the bar is closed, the prompt has the focus."""
        hint = with_keys("find in this chat; arrows step, {dialog.back} goes back")
        super().__init__(compact=True, placeholder=hint)
        self.found = Static(id="found", markup=False)
        self._transcript, self._path, self._prompt = transcript, path, prompt
        self._spots: list[Spot] = []
        self._shown = 0
        """The index of the spot that is shown."""
        self._opened_at: Aim | None = None
        """Where the reader was when the bar was opened; None at the end of the chat."""
        self._folded: dict[str, str] = {}
        """Texts of the chat with their case folded, kept while the bar is open."""

    @property
    def is_open(self) -> bool:
        return self.screen.has_class("-finding")

    def open(self) -> None:
        """Show the bar with the last text selected, so that typing replaces it."""
        self._folded = {}
        transcript = self._transcript
        self._opened_at = None if transcript.is_following else transcript.in_sight()
        self.screen.add_class("-finding")
        self.action_select_all()
        # `focus` would take effect only after the keys that are already queued.
        self.screen.set_focus(self)
        self._find()
        self.screen.refresh_bindings()

    def close(self) -> None:
        """Hide the bar, and stay at the passage that is shown."""
        self._transcript.unmark()
        self._transcript.look_for("")
        self.screen.remove_class("-finding")
        self._prompt.take_focus()
        self.screen.refresh_bindings()

    async def _on_key(self, event: events.Key) -> None:
        if self.is_open:
            await run_own_key(self, event)
        else:
            # It was queued behind the key that closed the bar: the screen takes it.
            event.prevent_default()

    def _find(self) -> None:
        """Show the last passage: what was said last is most often what is looked for."""
        self._spots = spots(self._path(), self.value, self._folded)
        self._shown = len(self._spots) - 1
        self._transcript.look_for(self.value)
        self._show()

    def _show(self) -> None:
        said = "not found" if self.value.strip() else ""
        if self._spots:
            spot = self._spots[self._shown]
            self._transcript.reveal(spot.turn, spot.span, in_reasoning=spot.in_reasoning)
            said = f"{self._shown + 1:,} of {len(self._spots):,}"
        else:
            self._transcript.unmark()
        self.found.update(said)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._find()

    async def action_submit(self) -> None:
        self.action_step(-1)

    def action_step(self, by: int) -> None:
        """Show the next match (1) or the previous one (-1)."""
        if self._spots:
            self._shown = (self._shown + by) % len(self._spots)
            self._show()

    def action_back(self) -> None:
        """Scroll to where the reader was when the bar was opened, and close it."""
        if self._opened_at is None:
            self._transcript.action_scroll_end()
        else:
            self._transcript.go(self._opened_at)
        self.close()
