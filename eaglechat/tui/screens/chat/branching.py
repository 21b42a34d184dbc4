"""What can be done with the turns of the chat screen: select, edit, answer again, step, delete."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on

from eaglechat.chat.conversation.turns import Question, TurnId
from eaglechat.chat.writing.question import QuestionParts
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.commands.slash import begins_command, escaped
from eaglechat.tui.screens.chat.base import ChatBase
from eaglechat.tui.texts import wording
from eaglechat.tui.widgets.transcript.entry import Entry


@dataclass(frozen=True)
class Editing:
    """An earlier question that is in the prompt to be asked in other words."""

    question: TurnId
    original: str
    before: str
    """What stood in the prompt."""


class Branching(ChatBase):
    """Works on the selected turn, or on the last one."""

    editing: Editing | None = None

    # Selecting

    def action_select_turn(self, by: int) -> None:
        ids = [turn.id for turn in self.session.turns.path]
        if not ids:
            self.notify(wording.NO_TURNS)
            return
        selected = self.transcript.selected
        place = ids.index(selected) + by if selected in ids else len(ids) + min(by, 0)
        if place < len(ids):
            self.transcript.selected = ids[max(place, 0)]
        else:
            self.transcript.selected = None
            self.transcript.action_scroll_end()

    @on(Entry.Chosen)
    def _chosen(self, event: Entry.Chosen) -> None:
        is_selected = event.turn == self.transcript.selected
        self.transcript.selected = None if is_selected else event.turn

    def _target(self) -> TurnId | None:
        """The turn that a command works on; None in an empty chat, which is said."""
        last = self.session.turns.last
        if last is None:
            self.notify(wording.NO_TURNS)
        return self.transcript.selected or (last.id if last else None)

    # Answering again, and stepping

    def action_answer_again(self) -> None:
        if (id := self._target()) is not None and self.session.answer_again(id):
            self.transcript.selected = None

    def action_go_on(self) -> None:
        if (id := self._target()) is not None and self.session.continue_reply(id):
            self.transcript.selected = None

    def action_step(self, by: int) -> None:
        id = self.transcript.selected or self._last_with_siblings()
        if id is not None:
            self._step(id, by)

    @on(Entry.Stepped)
    def _stepped(self, event: Entry.Stepped) -> None:
        self._step(event.turn, event.by)

    def _last_with_siblings(self) -> TurnId | None:
        turns = self.session.turns
        for turn in reversed(turns.path):
            if len(turns.siblings(turn.id)) > 1:
                return turn.id
        return self._target()

    def _step(self, id: TurnId, by: int) -> None:
        sibling = self.session.step(id, by)
        if sibling is None:
            return
        self.draw()
        if self.transcript.selected is not None:
            self.transcript.selected = sibling
        else:
            self.transcript.reveal(sibling)

    # Deleting

    def action_delete_turn(self) -> None:
        if (id := self._target()) is not None:
            self.session.delete(id)

    def action_undo_delete(self) -> None:
        id = self.session.undo_delete()
        if id is not None:
            self.draw()
            self.transcript.reveal(id)

    # Editing

    def action_edit(self) -> None:
        editing = self.editing
        if editing is not None and self.prompt.text != editing.original:
            self.notify(with_keys(wording.EDITING))
        elif (question := self._question_to_edit()) is not None:
            before = editing.before if editing else self.prompt.text
            self.edit(question, self.prompt.marks.text(question.parts), before)

    def _question_to_edit(self) -> Question | None:
        """The one before that which is edited now; else that of the selected turn, or the last."""
        id = self.editing.question if self.editing else self._target()
        if id is None:
            return None
        path = self.session.turns.path_to(id)
        questions = [turn for turn in path if isinstance(turn, Question)]
        if self.editing is not None:
            questions.pop()
        if not questions:
            self.notify(wording.NO_EARLIER)
        return questions[-1] if questions else None

    def edit(self, question: Question, text: str, before: str) -> None:
        """Put a question in the prompt, to be asked in the words that it has there."""
        self.editing = Editing(question.id, self.prompt.marks.text(question.parts), before)
        self.transcript.selected = question.id
        self.prompt.replace_all(text)
        self.prompt.take_focus()
        self.prompt.border_title = with_keys(wording.EDITING)
        self.refresh_bindings()

    def end_edit(self) -> None:
        """Give back what stood in the prompt before; Up finds what was written in its place."""
        if self.editing is not None:
            if self.prompt.text != self.editing.original:
                self.prompt.remember(escaped(self.prompt.text))
            self.prompt.replace_all(self.editing.before)
            self.editing = None
            self.prompt.border_title = None
            self.transcript.selected = None
            self.refresh_bindings()

    @property
    def typed(self) -> str:
        """What is to be kept of the prompt: an edit that is none yet gives way to what stood there
        before."""
        if self.editing is not None and self.prompt.text == self.editing.original:
            return self.editing.before
        # Else the time it takes to type a command would leave a chat of that name.
        is_command = self.editing is None and begins_command(self.prompt.text)
        return "" if is_command else self.prompt.text

    @property
    def draft(self) -> QuestionParts:
        """The same, with what its marks stand for."""
        return self.prompt.marks.parts(self.typed)

    def action_stop(self) -> None:
        if self.editing is not None:
            self.end_edit()
        elif self.session.running is not None:
            self.session.stop()
        else:
            self.transcript.selected = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        allowed = super().check_action(action, parameters)
        # Dim where there is nothing to stop.
        if allowed and action == "stop":
            is_idle = self.session.running is None and self.editing is None
            return None if is_idle and self.transcript.selected is None else True
        return allowed
