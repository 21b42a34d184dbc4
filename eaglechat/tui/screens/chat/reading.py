"""Reading a chat: the transcript, selecting turns, finding, looking inside a round."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from textual import on

from eaglechat.chat.recording import Recording
from eaglechat.chat.refusals import TURN_GONE
from eaglechat.chat.saved_chat import Passage
from eaglechat.chat.search import parse
from eaglechat.chat.turns import Question, Reply, TurnId
from eaglechat.chat.writing.question import shown as shown_parts
from eaglechat.settings.model import View
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.chat.inside import InsideScreen
from eaglechat.tui.screens.chat.panel import PanelScreen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.services import clipboard
from eaglechat.tui.widgets.find_bar import FindBar
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.wire.neutral import neutralise
from eaglechat.words.addresses import cannot_open, shown_address
from eaglechat.words.timeline import Entry, entries, entries_of

_NO_TURNS = "Nothing has been asked in this chat yet."


class ReadingScreen(PanelScreen):
    """A chat as far as its transcript is concerned. Commands work on the selected turn, or else on
    the last one."""

    _drawn_version = -1
    _is_to_draw = False

    def changed(self) -> None:
        if not self._is_to_draw:
            self._is_to_draw = True
            self.call_later(self._draw)

    def _draw(self) -> None:
        """Draw what changed since the last frame."""
        self._is_to_draw = False
        if not self.is_open:
            return
        session = self.session
        if session.version != self._drawn_version:
            self._drawn_version = session.version
            self.transcript.show([*map(_with_keys, entries(session))])
            self.refresh_bindings()
            self.show_numbers()
        elif session.running is not None:
            for entry in entries_of(session, session.running.turn):
                self.transcript.follow(entry)
            self._follow_numbers()

    # Turns

    def action_select_turn(self, by: int) -> None:
        ids = [turn.id for turn in self.session.turns.path]
        if not ids:
            self.notify(_NO_TURNS)
            return
        transcript = self._uncovered()
        selected = transcript.selected
        place = ids.index(selected) + by if selected in ids else len(ids) + min(by, 0)
        if place < len(ids):
            transcript.select(ids[max(place, 0)])
            transcript.take_focus()
        else:
            transcript.selected = None
            transcript.action_scroll_end()

    def _follow_growth(self, has_new_below: bool) -> None:
        self.query_one("#new-below").display = has_new_below

    def _follow_selection(self, selected: TurnId | None) -> None:
        if selected is None and self.focused is self.transcript:
            self.prompt.take_focus()
        self.refresh_bindings()

    @on(Transcript.Chosen)
    def _turn_chosen(self, event: Transcript.Chosen) -> None:
        is_selected = event.turn == self.transcript.selected
        self.transcript.selected = None if is_selected else event.turn

    def _turn_to_change(self) -> TurnId | None:
        """The turn a command works on. In an empty chat it tells the user so and returns None."""
        last = self.session.turns.last
        if last is None:
            self.notify(_NO_TURNS)
        return self.transcript.selected or (last.id if last else None)

    def action_step(self, by: int) -> None:
        id = self.transcript.selected or self._last_with_siblings()
        if id is not None:
            self._step(id, by)

    @on(Transcript.Stepped)
    def _stepped(self, event: Transcript.Stepped) -> None:
        self._step(event.turn, event.by)

    def _last_with_siblings(self) -> TurnId | None:
        turns = self.session.turns
        for turn in reversed(turns.path):
            if len(turns.siblings(turn.id)) > 1:
                return turn.id
        return self._turn_to_change()

    def _step(self, id: TurnId, by: int) -> None:
        transcript = self.transcript
        row, is_selected = transcript.row_in_sight(id), transcript.selected is not None
        sibling = self.session.step(id, by)
        if sibling is None:
            return
        self._draw()
        if is_selected:
            transcript.selected = sibling
        transcript.reveal(sibling, row=row)

    def action_answer_again(self) -> None:
        if (id := self._turn_to_change()) is not None and self.session.answer_again(id):
            self.transcript.selected = None

    def action_go_on(self) -> None:
        if (id := self._turn_to_change()) is not None and self.session.continue_reply(id):
            self.transcript.selected = None

    def action_delete_turn(self) -> None:
        if self.transcript.selected is None and self.session.forget_given_back():
            return
        if (id := self._turn_to_change()) is not None:
            self.session.delete(id)

    def action_undo_delete(self) -> None:
        id = self.session.undo_delete()
        if id is not None:
            self._draw()
            self.transcript.reveal(id)

    # The transcript

    def action_page(self, direction: int) -> None:
        if direction < 0:
            self._uncovered().scroll_page_up()
        else:
            self._uncovered().scroll_page_down()

    def action_beginning(self) -> None:
        self._uncovered().action_scroll_home()

    def action_end(self) -> None:
        self._uncovered().action_scroll_end()

    def action_copy(self) -> None:
        """Copy the selected turn, or the last reply."""
        selected = self.transcript.selected
        turn = self.session.turns.find(selected) if selected is not None else None
        if isinstance(turn, Question | Reply) and turn.text:
            kind = "reply" if isinstance(turn, Reply) else "question"
            clipboard.copy(self.app, neutralise(turn.text), f"the {kind}")
        else:
            self.transcript.copy_reply()

    def action_copy_code(self) -> None:
        self.transcript.copy_code()

    def action_fold_thought(self) -> None:
        self._uncovered().fold_thought()

    def action_view(self, view: View | None) -> None:
        """Show replies in this view; without one, in the next."""
        if view is None:
            views = get_args(View)
            view = views[(views.index(self.transcript.view) + 1) % len(views)]
        self.services.settings.change("interface", "view", view)

    def action_open_link(self) -> None:
        self.transcript.open_link()

    @on(Transcript.LinkChosen)
    def _link_chosen(self, event: Transcript.LinkChosen) -> None:
        reason = cannot_open(event.address)
        if reason is not None:
            self.notify(reason, severity="warning")
        else:
            question = Ask("Open this address?", shown_address(event.address), "opens it")
            self.open(question, lambda _yes: self.app.open_url(event.address))

    # Inside a round

    def action_inspect(self) -> None:
        turns, selected = self.session.turns, self.transcript.selected
        turn = turns.find(selected) if selected is not None else turns.last_reply
        reply = turn if isinstance(turn, Reply) else turns.last_reply
        if reply is None or not reply.recording.rounds:
            self.notify("There are no rounds to show: nothing has been generated here yet.")
        else:
            self._look_inside(reply.recording, len(reply.recording.rounds) - 1)

    @on(Transcript.RoundChosen)
    def _round_chosen(self, event: Transcript.RoundChosen) -> None:
        self._look_inside(event.recording, event.index)

    def _look_inside(self, recording: Recording, index: int) -> None:
        self.open(InsideScreen(self.session, recording, index, self._answer_recorded))

    def _answer_recorded(self, recording: Recording) -> Recording | None:
        """Answer again with the target's candidates recorded, as in all replies from now on."""
        replies = (turn for turn in self.session.turns if isinstance(turn, Reply))
        reply = next((turn for turn in replies if turn.recording is recording), None)
        if reply is None:
            self.say(TURN_GONE)
            return None
        again = self.session.answer_recorded(reply.id)
        if again is not None:
            self.services.settings.change("interface", "inspect", True)
        return again

    # Finding in this chat

    def _show_passage(self, passage: Passage | None) -> None:
        """Show a passage that a search found in the saved chat, on any branch."""
        if passage is None or not self.session.choose(passage.turn):
            return
        self._draw()
        turn = self.session.turns.find(passage.turn)
        if not isinstance(turn, Question | Reply):
            return
        query = parse(passage.words)
        in_reasoning = not query.is_in(turn.text) and query.is_in(turn.reasoning)
        said = shown_parts(turn.parts) if isinstance(turn, Question) else turn.text
        marks = query.marks(turn.reasoning if in_reasoning else said)
        self._uncovered().reveal(turn.id, marks[0] if marks else None, in_reasoning=in_reasoning)

    def action_find(self) -> None:
        bar = self.query_one(FindBar)
        if bar.is_open:
            self._end_finding()
        else:
            bar.open()
            self.refresh_bindings()

    def _end_finding(self) -> None:
        self.query_one(FindBar).close()
        self.prompt.take_focus()
        self.refresh_bindings()


def _with_keys(entry: Entry) -> Entry:
    """An entry, a notice of the app with the names of keys."""
    is_notice = entry.kind in ("information", "warning", "error")
    return replace(entry, text=with_keys(entry.text)) if is_notice else entry
