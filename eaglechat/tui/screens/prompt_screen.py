"""What the screens with a prompt share: the chat, and the one that loads a pair."""

from __future__ import annotations

from textual import events

from eaglechat.tui.screens.base import EagleScreen, Result
from eaglechat.tui.widgets.prompt.prompt import Prompt


class PromptScreen(EagleScreen[Result]):
    """A screen with a prompt, which gets what is typed whatever has the focus, also before the
    prompt has it."""

    AUTO_FOCUS = ""

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def on_mount(self) -> None:
        self.prompt.take_focus()

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character and event.key not in self.active_bindings:
            event.stop()
            self.prompt.type_in(event.character)

    def on_paste(self, event: events.Paste) -> None:
        self.prompt.type_in(event.text)
