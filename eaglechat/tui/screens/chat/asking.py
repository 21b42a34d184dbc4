"""What the chat screen has the model do: answer, compare, think no more."""

from __future__ import annotations

from textual import on

from eaglechat.chat import wording
from eaglechat.tui.commands.registry import key_of
from eaglechat.tui.navigation import ShowPrompt
from eaglechat.tui.screens.chat.branching import Branching
from eaglechat.tui.widgets.prompt import Prompt
from eaglechat.wire.protocol import Rendered


class Asking(Branching):
    """Sends what is written: a question, or an earlier one in other words."""

    @on(Prompt.Sent)
    def _prompt_sent(self, event: Prompt.Sent) -> None:
        text = event.text.strip()
        if not text:
            self.notify(wording.write_first(key_of))
        elif self.editing is not None:
            if self.session.edit(self.editing.question, text):
                self.prompt.take()
                self.end_edit()
        elif self.session.ask(text):
            self.prompt.take()
            self.transcript.selected = None

    def action_compare(self) -> None:
        self.session.compare()

    def action_prompt(self) -> None:
        typed = self.prompt.text.strip()

        def show(prompt: Rendered) -> None:
            if self.is_on_top:
                self.go(ShowPrompt(prompt, wording.prompt_seen(prompt, self.session.n_ctx, typed)))

        self.session.show_prompt(typed, show)

    def action_answer_now(self) -> None:
        self.session.answer_now()
