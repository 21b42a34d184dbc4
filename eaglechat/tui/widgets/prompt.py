"""The prompt: a key sends, another begins a new line, Up and Down walk through what was sent."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.registry import keys_of


class Prompt(TextArea):
    """A multi-line prompt that grows with its text (its style sheet caps the height)."""

    BINDINGS = bindings_of("prompt")

    @dataclass
    class Sent(Message):
        """The user wants to send; the text stays until the screen takes it."""

        prompt: Prompt
        text: str

        @property
        def control(self) -> Prompt:
            return self.prompt

    def __init__(self, *, id: str | None = None, placeholder: str = "") -> None:
        super().__init__(
            id=id,
            placeholder=placeholder,
            tab_behavior="focus",
            soft_wrap=True,
            highlight_cursor_line=False,
            compact=True,
        )
        self._sent: list[str] = []
        self._position = 0
        self._unsent = ""

    def type_in(self, text: str) -> None:
        """Take what was typed or pasted while something else had the focus, and the focus."""
        self.take_focus()
        self.replace(text, *self.selection, maintain_selection_offset=False)

    def take_focus(self) -> None:
        """Have the focus at once: `focus` lets keys go elsewhere for a while."""
        self.screen.set_focus(self)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()

    def take(self) -> None:
        """The text was sent: remember it and clear the prompt."""
        self.remember(self.text)
        self.clear()

    def remember(self, text: str) -> None:
        """Put a text where Up finds it."""
        if text and (not self._sent or self._sent[-1] != text):
            self._sent.append(text)
        self._position = len(self._sent)
        self._unsent = ""

    def replace_all(self, text: str) -> None:
        """Put a text in the prompt, the cursor behind it."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def action_send(self) -> None:
        self.post_message(self.Sent(self, self.text))

    def action_newline(self) -> None:
        self.insert("\n")

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self._on_first_row or not self._walk(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self._on_last_row or not self._walk(1):
            super().action_cursor_down(select)

    async def _on_key(self, event: events.Key) -> None:
        # Not left to the bindings: those run after keys that were typed behind them.
        if event.key in keys_of("prompt.send"):
            event.prevent_default().stop()
            self.action_send()
        elif event.key in keys_of("prompt.newline"):
            event.prevent_default().stop()
            self.action_newline()

    @property
    def _on_first_row(self) -> bool:
        return self.navigator.is_first_wrapped_line(self.cursor_location)

    @property
    def _on_last_row(self) -> bool:
        return self.navigator.is_last_wrapped_line(self.cursor_location)

    def _walk(self, step: int) -> bool:
        position = self._position + step
        if not 0 <= position <= len(self._sent):
            return False
        if self._position == len(self._sent):
            self._unsent = self.text
        self._position = position
        self.replace_all(self._sent[position] if position < len(self._sent) else self._unsent)
        return True
