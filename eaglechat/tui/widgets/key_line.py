"""The bottom line: what can be done now, with its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.widget import Widget

from eaglechat.tui.commands.keys import active_commands, keys_of, short_key_of
from eaglechat.tui.commands.table import BY_ID


@dataclass(frozen=True)
class Offer:
    """A command in the bottom line, with its label."""

    id: str
    label: str
    by_turn_key: bool = False
    """Whether it is offered with the key that holds while the transcript has the focus."""

    @property
    def key(self) -> str:
        return BY_ID[self.id].turn_key if self.by_turn_key else keys_of(self.id)[0]

    @property
    def shown_key(self) -> str:
        return f" {short_key_of(self.id, in_turn=self.by_turn_key)} "

    @property
    def width(self) -> int:
        return len(self.shown_key) + len(self.label) + 1


class KeyLine(Widget):
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

    def __init__(self, offers: Callable[[], Sequence[Offer]] | None = None) -> None:
        """`offers` says what stands there; without it, the commands that have a label do."""
        super().__init__()
        self._offers = offers or self._with_a_label
        self._drawn: Sequence[Offer] = ()

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _screen: self._follow())

    def on_resize(self) -> None:
        self._follow()

    def _follow(self) -> None:
        if self.is_attached and (fitting := self._fitting()) != self._drawn:
            self._drawn = fitting
            self.refresh()

    def _with_a_label(self) -> Sequence[Offer]:
        return [
            Offer(active.command.id, active.command.footer)
            for active in active_commands(self.screen)
            if active.command.footer and active.enabled
        ]

    def _fitting(self) -> Sequence[Offer]:
        offers, room = [], self.app.size.width
        for offer in self._offers():
            room -= offer.width
            if room < 0:
                break
            offers.append(offer)
        return offers

    def render(self) -> Content:
        return Content.assemble(
            *(
                part
                for offer in self._drawn
                for part in ((offer.shown_key, "bold $footer-key-foreground"), f"{offer.label} ")
            )
        )

    def _at(self, column: int) -> Offer | None:
        for offer in self._drawn:
            if column < offer.width:
                return offer
            column -= offer.width
        return None

    def on_mouse_move(self, event: events.MouseMove) -> None:
        offer = self._at(event.x)
        self.tooltip = BY_ID[offer.id].help if offer is not None else None

    def on_click(self, event: events.Click) -> None:
        if (offer := self._at(event.x)) is not None:
            self.app.simulate_key(offer.key)
