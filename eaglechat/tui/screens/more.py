"""The list behind the leader's key: the commands that a second key runs."""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList

from eaglechat.tui.commands.bindings import Active, active_commands
from eaglechat.tui.commands.command import LEADER
from eaglechat.tui.commands.registry import key_of, name_of
from eaglechat.tui.screens.base import EagleModal, TooSmall


class MoreScreen(EagleModal[Active]):
    """Dismisses with the command that was chosen, which belongs to the screen below."""

    CSS_PATH = "more.tcss"

    def __init__(self, about: Screen[Any]) -> None:
        super().__init__()
        self._active = [one for one in active_commands(about) if one.enabled and _seconds(one)]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="more") as dialog:
            dialog.border_title = f"{key_of('app.leader')} and"
            dialog.border_subtitle = f"{key_of('dialog.back')} back"
            keys = [_named(one) for one in self._active]
            width = max(map(len, keys), default=0)
            rows = (
                _row(key.rjust(width), one) for key, one in zip(keys, self._active, strict=True)
            )
            yield OptionList(*rows, compact=True)
        yield TooSmall()

    def on_key(self, event: events.Key) -> None:
        key = event.key.lower()
        chosen = next((one for one in self._active if key in _seconds(one)), None)
        if chosen is not None:
            event.stop()
            self.dismiss(chosen)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._active[event.option_index])


def _seconds(active: Active) -> list[str]:
    """The second keys of a command, after the leader's."""
    return [key.partition(" ")[2] for key in active.keys if key.startswith(f"{LEADER} ")]


def _named(active: Active) -> str:
    name = name_of(_seconds(active)[0])
    return name.upper() if len(name) == 1 else name


def _row(key: str, active: Active) -> Content:
    return Content.assemble((f"  {key}  ", "bold $primary"), active.command.title)
