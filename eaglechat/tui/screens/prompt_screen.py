"""What the screens with a prompt share: the chat, and the one that loads a pair."""

from __future__ import annotations

from textual import events

from eaglechat.tui.commands.keys import run_own_key
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

    async def typed(self, event: events.Key) -> None:
        prompt = self.prompt
        if event.is_printable and event.character:
            if event.key not in self.active_bindings:
                event.stop()
                prompt.type_in(event.character)
        else:
            await run_own_key(prompt, event)

    def on_prompt_sent(self) -> None:
        # After the handlers of the screen itself, which may have opened another.
        self.prompt.is_waiting, self._has_opened = False, not self.is_on_top

    def on_paste(self, event: events.Paste) -> None:
        if not self._has_opened:
            self.prompt.type_in(event.text)
