"""What the chat screen has the model do: answer, compare, think no more."""

from __future__ import annotations

from eaglechat.chat.writing.question import text_of
from eaglechat.tui.navigation import ShowPrompt
from eaglechat.tui.screens.chat.branching import Branching
from eaglechat.tui.texts import wording
from eaglechat.wire.protocol import Rendered


class Asking(Branching):
    """Works on the turns, and shows what the model would be sent."""

    def action_compare(self) -> None:
        self.session.compare()

    def action_prompt(self) -> None:
        typed = text_of(self.prompt.marks.parts(self.prompt.text)).strip()

        def show(prompt: Rendered) -> None:
            if self.is_on_top:
                self.go(ShowPrompt(prompt, wording.prompt_seen(prompt, self.session.n_ctx, typed)))

        self.session.show_prompt(typed, show)

    def action_answer_now(self) -> None:
        self.session.answer_now()
