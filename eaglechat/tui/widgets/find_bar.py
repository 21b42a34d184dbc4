"""The line in which the user types what to find in the open chat."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.widgets.readouts import Line


class FindBar(Horizontal):
    """Hidden until it is opened. It posts what is typed and which match is wanted; the screen finds
    the matches, and sets their count by `say`."""

    BINDINGS = bindings_of("find")
    DEFAULT_CSS = """
    FindBar {
        height: 1;
        padding: 0 1;
        background: $surface;
        display: none;
    }
    FindBar.-open {
        display: block;
    }
    FindBar Input {
        width: 1fr;
    }
    FindBar Line {
        width: auto;
        padding: 0 1;
        color: $foreground-muted;
    }
    """

    @dataclass
    class Typed(Message):
        """The text was changed."""

        text: str

    @dataclass
    class Stepped(Message):
        """The next match is wanted (1), or the previous one (-1)."""

        by: int

    class Closed(Message):
        """The bar is to be closed, and the chat scrolled back to where it was opened."""

    def compose(self) -> ComposeResult:
        yield Input(
            compact=True,
            placeholder=with_keys(
                "find in this chat; {find.next} next, {find.previous} previous, {find.back} back"
            ),
        )
        yield Line("", id="found")

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self) -> None:
        """Show the bar with the last text selected, so that typing replaces it."""
        self.add_class("-open")
        line = self.query_one(Input)
        line.action_select_all()
        # `focus` would take effect only after the keys that are already queued.
        self.screen.set_focus(line)

    def close(self) -> None:
        self.remove_class("-open")

    @property
    def text(self) -> str:
        return self.query_one(Input).value

    def say(self, found: str) -> None:
        """Show a text beside the input, such as “2 of 5”."""
        self.query_one("#found", Line).show(found)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_next()

    def action_next(self) -> None:
        self.post_message(self.Stepped(1))

    def action_previous(self) -> None:
        self.post_message(self.Stepped(-1))

    def action_back(self) -> None:
        self.post_message(self.Closed())
