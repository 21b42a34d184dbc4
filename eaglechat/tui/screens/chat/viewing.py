"""How the chat screen shows its transcript and panel."""

from __future__ import annotations

from eaglechat.tui.screens.chat.base import ChatBase


class Viewing(ChatBase):
    """Scrolls, folds, copies, and switches views."""

    def action_page(self, direction: int) -> None:
        if direction < 0:
            self.transcript.scroll_page_up()
        else:
            self.transcript.scroll_page_down()

    def action_copy(self) -> None:
        self.transcript.copy_reply()

    def action_fold_thought(self) -> None:
        self.transcript.fold_thought()

    def action_toggle_view(self, name: str) -> None:
        setattr(self.transcript, name, not getattr(self.transcript, name))
