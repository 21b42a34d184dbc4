"""What the chat screen has the model do: answer, compare, stop."""

from __future__ import annotations

from textual import on

from eaglechat.chat import wording
from eaglechat.tui.commands.registry import key_of
from eaglechat.tui.navigation import ShowPrompt
from eaglechat.tui.screens.chat.base import ChatBase
from eaglechat.tui.widgets.prompt import Prompt
from eaglechat.wire.protocol import Rendered


class Asking(ChatBase):
    """Sends what is written, and works on the turns."""

    @on(Prompt.Sent)
    def _prompt_sent(self, event: Prompt.Sent) -> None:
        text = event.text.strip()
        if not text:
            self.notify(wording.write_first(key_of))
        elif self.session.ask(text):
            self.prompt.take()

    def action_compare(self) -> None:
        self.session.compare()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        allowed = super().check_action(action, parameters)
        # Dim where there is nothing to stop.
        if allowed and action == "stop" and self.session.running is None:
            return None
        return allowed

    def action_stop(self) -> None:
        self.session.stop()

    def action_prompt(self) -> None:
        typed = self.prompt.text.strip()

        def show(prompt: Rendered) -> None:
            if self.is_on_top:
                self.go(ShowPrompt(prompt, wording.prompt_seen(prompt, self.session.n_ctx, typed)))

        self.session.show_prompt(typed, show)

    def action_answer_now(self) -> None:
        self.session.answer_now()
