"""How the chat screen shows its transcript and panel."""

from __future__ import annotations

from functools import partial

from textual import on

from eaglechat.chat.capability_text import not_reported
from eaglechat.chat.conversation.turns import Reply
from eaglechat.chat.recording import Recording
from eaglechat.tui.navigation import Confirm, LookInside
from eaglechat.tui.screens.chat.base import ChatBase
from eaglechat.tui.screens.chat.links import cannot_open, shown
from eaglechat.tui.texts import wording
from eaglechat.tui.widgets.transcript.reply import LinkChosen
from eaglechat.tui.widgets.transcript.reply import Reply as ReplyEntry


class Viewing(ChatBase):
    """Scrolls, folds, copies, and switches views."""

    def action_page(self, direction: int) -> None:
        if direction < 0:
            self.transcript.scroll_page_up()
        else:
            self.transcript.scroll_page_down()

    def action_beginning(self) -> None:
        self.transcript.action_scroll_home()

    def action_latest(self) -> None:
        self.transcript.action_scroll_end()

    def action_copy_code(self) -> None:
        self.transcript.copy_code()

    def action_open_link(self) -> None:
        self.transcript.open_link()

    @on(LinkChosen)
    def _link_chosen(self, event: LinkChosen) -> None:
        reason = cannot_open(event.address)
        if reason is not None:
            self.notify(reason, severity="warning", markup=False)
        else:
            open_it = partial(self.app.open_url, event.address)
            self.go(Confirm("Open this address?", shown(event.address), "Open", open_it))

    def action_copy(self) -> None:
        self.transcript.copy_reply()

    def action_fold_thought(self) -> None:
        self.transcript.fold_thought()

    def action_inspect(self) -> None:
        turns, selected = self.session.turns, self.transcript.selected
        turn = turns.find(selected) if selected is not None else turns.last_reply
        reply = turn if isinstance(turn, Reply) else turns.last_reply
        if reply is None or not reply.recording.rounds:
            self.notify(wording.NO_ROUNDS)
        else:
            self._look_inside(reply.recording, len(reply.recording.rounds) - 1)

    @on(ReplyEntry.RoundChosen)
    def _round_chosen(self, event: ReplyEntry.RoundChosen) -> None:
        self._look_inside(event.recording, event.index)

    def _look_inside(self, recording: Recording, index: int) -> None:
        self.go(LookInside(recording, index, not_reported(self.session.hello, "likely")))

    def action_toggle_view(self, name: str) -> None:
        setattr(self.transcript, name, not getattr(self.transcript, name))
