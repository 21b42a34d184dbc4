"""How the chat screen takes what is written in its prompt: a question, or a command."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on

from eaglechat.chat import wording
from eaglechat.tui.commands import slash
from eaglechat.tui.commands.command import Command
from eaglechat.tui.commands.registry import key_of
from eaglechat.tui.navigation import LoadInstead, OpenLibrary
from eaglechat.tui.screens.chat.branching import Branching
from eaglechat.tui.widgets.prompt.prompt import Prompt


class Writing(Branching):
    """Sends questions, runs commands, and completes both."""

    @on(Prompt.Sent)
    def _prompt_sent(self, event: Prompt.Sent) -> None:
        text = slash.literal(event.text) if self.editing is None else event.text
        if text is None:
            self._run_typed(event.text)
        elif not text.strip():
            self.notify(wording.write_first(key_of))
        elif self.editing is not None:
            if self.session.edit(self.editing.question, text.strip()):
                self.prompt.take()
                self.end_edit()
        elif self.session.ask(text.strip()):
            self.prompt.take()
            self.transcript.selected = None

    def _run_typed(self, text: str) -> None:
        """Do what a command with a slash says."""
        try:
            call = slash.parse(text)
        except slash.SlashError as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        self.prompt.take()
        namespace = self.app if "app" in call.command.scopes else self
        self.app.call_next(self.app.run_action, call.command.call(call.value), namespace)

    def completed(self, before: str, is_first: bool) -> slash.Offer | None:
        """What the text before the cursor can become."""
        is_command = is_first and self.editing is None
        return slash.offer(before, self._names) if is_command else None

    def _names(self, command: Command) -> Sequence[tuple[str, str]]:
        """What the value of a command may be by name."""
        if command.id == "chat.model":
            return [(pair.name, pair.source) for pair in self.services.pairs.pairs()]
        return ()

    def action_model(self, name: str | None) -> None:
        """Chat with other models; what is typed goes along."""
        if name is None:
            self.go(OpenLibrary())
            return
        pairs = [pair for pair in self.services.pairs.pairs() if pair.name == name]
        if not pairs:
            known = ", ".join(pair.name for pair in self.services.pairs.pairs())
            self.notify(f"There is no pair “{name}”. There are: {known}.", markup=False)
        else:
            self.go(LoadInstead(pairs[0]))
