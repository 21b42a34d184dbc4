"""Asking in a chat: the prompt, an earlier question that is rewritten, files that are attached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from textual import on

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.refusals import no_prompt
from eaglechat.chat.turns import Question, TurnId
from eaglechat.chat.writing.files import read_part
from eaglechat.chat.writing.question import QuestionParts, text_of
from eaglechat.tui.commands import slash
from eaglechat.tui.commands.registry import key_of, with_keys
from eaglechat.tui.screens.chat.reading import ReadingScreen
from eaglechat.tui.screens.chat.seen import SeenScreen, prompt_seen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.services.editor import in_editor
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.wire import protocol
from eaglechat.words import context, wording
from eaglechat.words.numbers import numbers_of

_EDITING = "Editing: {prompt.send} sends it, {chat.stop} cancels"
_QUEUED = "Sent when the reply ends; {chat.stop} keeps it here"


@dataclass(frozen=True)
class Editing:
    """An earlier question that the user is rewriting in the prompt."""

    question: TurnId
    original: str
    before: str
    """The text of the prompt before the question was put there."""


class AskingScreen(ReadingScreen):
    """A chat as far as its prompt is concerned."""

    def __init__(self) -> None:
        super().__init__()
        self.editing: Editing | None = None
        self._queued: str | None = None
        """The text of the prompt that is sent as soon as the reply ends; None if none is."""
        self._warned_about = ""
        """The question that the user was last warned about, because it would fill the context."""
        self._being_read: set[str] = set()
        """Paths of attached files that are still being read."""

    @on(Prompt.Sent)
    def _prompt_sent(self, event: Prompt.Sent) -> None:
        text = slash.literal(event.text) if self.editing is None else event.text
        if text is None:
            self._run_typed(event.text)
        elif self._being_read:
            self.notify(f"{', '.join(self._being_read)}: still being read.")
        elif not text.strip():
            self.notify(with_keys(wording.WRITE_FIRST))
        elif self.session.running is not None:
            self._queue(event.text)
        elif self._is_too_much(text):
            return
        elif self.editing is not None:
            if self.session.edit(self.editing.question, self.prompt.marks.parts(text)):
                self.prompt.take()
                self._end_edit()
        elif self.session.ask(self.prompt.marks.parts(text)):
            self.prompt.take()
            self.transcript.selected = None

    def _queue(self, text: str | None) -> None:
        """Send this text of the prompt when the reply ends; None sends nothing then."""
        self._queued = text
        self._title_prompt()
        self.refresh_bindings()

    def _draw(self) -> None:
        super()._draw()
        if self.is_open and self._queued is not None and self.session.running is None:
            self._send_queued()

    def _send_queued(self) -> None:
        queued, prompt = self._queued, self.prompt
        self._queue(None)
        if prompt.text == queued and not self.session.is_engine_gone:
            self._prompt_sent(Prompt.Sent(prompt, queued))

    @on(Prompt.Changed)
    def _prompt_changed(self) -> None:
        if self._queued is not None and self.prompt.text != self._queued:
            self._queue(None)

    def _title_prompt(self) -> None:
        title = _EDITING if self.editing is not None else None
        title = title if self._queued is None else _QUEUED
        self.prompt.border_title = with_keys(title) if title else None

    def _is_too_much(self, text: str) -> bool:
        """Whether the question would fill the context. If so the user is warned once: sent again,
        the question is asked."""
        warning = context.warning(self._context_use(text))
        if not warning or self._warned_about == text:
            return False

        def warn(_prompt: protocol.Rendered | None = None) -> None:
            self._warned_about = text
            send = key_of("prompt.send")
            self.notify(f"{warning} {send} again sends it.", severity="warning")

        if no_prompt(self.session.hello) is None:
            # The length is an estimate. The engine knows it, and says why the prompt is too long.
            self.session.show_prompt(text_of(self.prompt.marks.parts(text)).strip(), warn)
        else:
            warn()
        return True

    def action_context(self) -> None:
        """Show which turns the context holds, and which one leaves it next."""
        said = context.in_words(self._context_use(self.prompt.text))
        of_reply = context.of_reply(self.session, numbers_of(self.session))
        self.open(Ask("Context", "\n\n".join(filter(None, (said, of_reply)))))

    def _context_use(self, text: str) -> context.ContextUse:
        edited = self.editing.question if self.editing is not None else None
        return context.context_use(self.session, self.prompt.marks.parts(text), edited)

    def action_prompt(self) -> None:
        """Show what the model would read if the prompt were sent."""
        typed = text_of(self.prompt.marks.parts(self.prompt.text)).strip()

        def show(prompt: protocol.Rendered) -> None:
            if self.is_on_top:
                summary = prompt_seen(prompt, self.session.n_ctx, typed)
                self.open(SeenScreen(prompt, summary))

        self.session.show_prompt(typed, show)

    @property
    def _to_stop(self) -> tuple[str, Callable[[], object]] | None:
        """What the key that stops does now, and its name; None if there is nothing to stop."""
        if self._is_covered:
            return "close", self._uncovered
        if self._queued is not None:
            return "keep", partial(self._queue, None)
        if self.editing is not None:
            return "cancel", self._end_edit
        if self.transcript.selected is not None:
            return "deselect", partial(setattr, self.transcript, "selected", None)
        return ("stop", self.session.stop) if self.session.running is not None else None

    def action_stop(self) -> None:
        if (to_stop := self._to_stop) is not None:
            to_stop[1]()

    def action_interrupt(self) -> None:
        self.session.stop()

    def action_answer_now(self) -> None:
        self.session.answer_now()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        allowed = super().check_action(action, parameters)
        if allowed and action == "stop":
            return self._to_stop is not None or None
        if allowed and action == "interrupt":
            return self.session.running is not None
        return allowed

    def save(self) -> None:
        was_behind = self.session.recorder.is_behind
        self.session.save(self._unsent)
        if self.session.recorder.is_behind != was_behind:
            self.show_numbers()

    def _run_typed(self, text: str) -> None:
        """Run a command that was typed with a slash."""
        try:
            call = slash.parse(text)
        except slash.SlashError as error:
            self.notify(str(error), severity="warning")
            return
        self.prompt.take()
        namespace = self.app if "app" in call.command.scopes else self
        self.app.call_next(self.app.run_action, call.command.call(call.value), namespace)

    # Editing an earlier question in the prompt

    def give_back(self, question: QuestionParts, version_of: TurnId | None) -> None:
        text = slash.escaped(self.prompt.marks.text(question))
        if self.editing is not None:
            # What is being typed stays.
            self.prompt.remember(text)
            if self.editing.question not in self.session.turns:
                self._edit_another(version_of)
        elif version_of is not None:
            self._edit(self.session.turns.question(version_of), text, self.prompt.text)
        elif self.prompt.text:
            self.prompt.remember(text)
        else:
            self.prompt.replace_all(text)

    def action_edit(self) -> None:
        """Edit the last question up to the turn that commands work on; while a question is edited,
        the question before it."""
        editing = self.editing
        if editing is not None and self.prompt.text != editing.original:
            self.say(_EDITING)
            return
        id = editing.question if editing else self._turn_to_change()
        if id is None:
            return
        path = self.session.turns.path_to(id)
        questions = [turn for turn in path if isinstance(turn, Question)]
        if editing is not None:
            questions.pop()
        if not questions:
            self.notify("There is no earlier question.")
            return
        before = editing.before if editing else self.prompt.text
        self._edit(questions[-1], self.prompt.marks.text(questions[-1].parts), before)

    def _edit(self, question: Question, text: str, before: str) -> None:
        """Put `text` in the prompt, to be asked in place of the question. The prompt gets `before`
        back afterwards."""
        self.editing = Editing(question.id, self.prompt.marks.text(question.parts), before)
        self.transcript.select(question.id)
        self.prompt.replace_all(text)
        self.prompt.take_focus()
        self._title_prompt()
        self.refresh_bindings()

    def _edit_another(self, version: TurnId | None) -> None:
        """The edited question is gone: what is being typed is asked in place of another version of
        it, or as a new question."""
        assert self.editing is not None
        if version is not None:
            question = self.session.turns.question(version)
            self._edit(question, self.prompt.text, self.editing.before)
            return
        typed, before = self.prompt.text, self.editing.before
        self.editing = None
        self.prompt.remember(before)
        self.prompt.replace_all(slash.escaped(typed))
        self._title_prompt()
        self.refresh_bindings()

    def _end_edit(self) -> None:
        """Put the text from before the edit back into the prompt. An edited text that was not sent
        goes into the prompt's history."""
        if self.editing is not None:
            if self.prompt.text != self.editing.original:
                self.prompt.remember(slash.escaped(self.prompt.text))
            self.prompt.replace_all(self.editing.before)
            self.editing = None
            self._title_prompt()
            self.transcript.selected = None
            self.refresh_bindings()

    @property
    def _unsent(self) -> QuestionParts:
        """The part of the prompt that is saved: neither an unchanged earlier question nor a
        command."""
        text = self.prompt.text
        if self.editing is not None and text == self.editing.original:
            text = self.editing.before
        elif self.editing is None and slash.begins_command(text):
            # A save while a command is being typed would name the chat after the command.
            text = ""
        return self.prompt.marks.parts(text)

    # What is attached, and written in the user's editor

    @on(Prompt.Attach)
    def _file_chosen(self, event: Prompt.Attach) -> None:
        self._being_read.add(event.path)
        n_ctx = self.session.n_ctx

        def fail(error: Exception) -> None:
            self._being_read.discard(event.path)
            self.notify(str(error), severity="warning")

        def attached(part: TurnPart) -> None:
            self._being_read.discard(event.path)
            self.prompt.put_in_place_of(event.name, part)

        self.in_background(lambda: read_part(event.path, Path(), n_ctx), attached, fail)

    def action_editor(self) -> None:
        """Edit the prompt in the user's editor."""
        self.save()
        text = in_editor(self.app, self.prompt.text, "question.md")
        if text is not None:
            self.prompt.replace_all(text)
            self.prompt.take_focus()
