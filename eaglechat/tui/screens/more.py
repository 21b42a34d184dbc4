"""What one more key does: the commands of a screen behind the leader's key."""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from eaglechat.tui.commands.active import Active, active_commands
from eaglechat.tui.commands.command import LEADER
from eaglechat.tui.commands.registry import key_of, name_of
from eaglechat.tui.screens.base import EagleModal, TooSmall


class MoreScreen(EagleModal[Active | None]):
    """Dismisses with the command that was chosen on the screen below, or None."""

    CSS_PATH = "more.tcss"

    def __init__(self, about: Screen[Any]) -> None:
        super().__init__()
        self._by_key = {
            key.partition(" ")[2]: active
            for active in active_commands(about)
            for key in active.keys
            if key.startswith(f"{LEADER} ") and active.enabled
        }

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="more") as dialog:
            dialog.border_title = f"{key_of('app.leader')} and"
            dialog.border_subtitle = f"{key_of('dialog.back')} back"
            yield OptionList(
                *(Option(_row(key, active), id=key) for key, active in self._by_key.items()),
                compact=True,
            )
        yield TooSmall()

    def on_key(self, event: events.Key) -> None:
        chosen = self._by_key.get(event.key.lower())
        if chosen is not None:
            event.stop()
            self.dismiss(chosen)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._by_key[event.option.id or ""])


def _row(key: str, active: Active) -> Content:
    return Content.assemble((f"{name_of(key):>3}  ", "bold $primary"), active.command.title)
