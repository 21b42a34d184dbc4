"""The bottom line: what can be done now, with its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual import events
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from eaglechat.tui.commands.keys import active_commands, keys_of, short_key_of
from eaglechat.tui.commands.table import BY_ID

_KEY = "key"
"""Meta key of a cell: the key that a click on it presses."""


def offer(id: str, label: str, *, by_turn_key: bool = False) -> Content:
    """A command with its key, or with the one that it has while the transcript has the focus."""
    key = BY_ID[id].turn_key if by_turn_key else keys_of(id)[0]
    shown = (f" {short_key_of(id, in_turn=by_turn_key)} ", "bold $footer-key-foreground")
    return Content.assemble(shown, f"{label} ").stylize(Style.from_meta({_KEY: key}))


class KeyLine(Static):
    """As many offers as there is room for: a key that is cut in the middle says nothing. A click on
    one presses its key."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeyLine {
        dock: bottom;
        height: 1;
        background: $footer-background;
        color: $footer-description-foreground;
        pointer: pointer;
    }
    """

    def __init__(self, offers: Callable[[], Iterable[Content]] | None = None) -> None:
        """`offers` says what stands there; without it, the commands that have a label do."""
        super().__init__()
        self._offers = offers or self._with_a_label

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _screen: self._follow())

    def on_resize(self) -> None:
        self._follow()

    def _follow(self) -> None:
        if self.is_attached:
            self.update(self._fitting(), layout=False)

    def _with_a_label(self) -> Iterable[Content]:
        for active in active_commands(self.screen):
            if active.command.footer and active.enabled:
                yield offer(active.command.id, active.command.footer)

    def _fitting(self) -> Content:
        line = Content("")
        for one in self._offers():
            if line.cell_length + one.cell_length > self.app.size.width:
                break
            line += one
        return line

    def on_click(self, event: events.Click) -> None:
        if key := event.style.meta.get(_KEY):
            self.app.simulate_key(key)
