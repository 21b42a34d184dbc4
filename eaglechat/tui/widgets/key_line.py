"""The bottom line: what can be done now, with its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from eaglechat.tui.commands.bindings import active_commands
from eaglechat.tui.commands.registry import BY_ID, keys_of, short_key_of

_AROUND = 3
"""Cells of an offer besides its key and its label."""


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
        return short_key_of(self.id, in_turn=self.by_turn_key)


@runtime_checkable
class Offering(Protocol):
    """A screen that says itself what stands in the bottom line."""

    def offers(self) -> Sequence[Offer]: ...


def offers_of(screen: Screen[object]) -> Sequence[Offer]:
    """What stands in the bottom line of a screen: what it says, or the commands with a label."""
    if isinstance(screen, Offering):
        return screen.offers()
    return [
        Offer(active.command.id, active.command.footer)
        for active in active_commands(screen)
        if active.command.footer and active.enabled
    ]


class KeyLine(Footer):
    """Textual's footer recomposes whenever the focus moves; this one only if its keys changed."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._drawn: Sequence[Offer] | None = None

    def compose(self) -> ComposeResult:
        if not self._bindings_ready:
            return
        self._drawn = self._fitting()
        for offer in self._drawn:
            command = BY_ID[offer.id]
            yield FooterKey(
                offer.key, offer.shown_key, offer.label, command.call(), tooltip=command.help
            ).data_bind(compact=Footer.compact)

    async def recompose(self) -> None:
        if self.is_attached and self._fitting() != self._drawn:
            await super().recompose()

    async def on_resize(self) -> None:
        await self.recompose()

    def _fitting(self) -> Sequence[Offer]:
        """What there is room for: a key that is cut in the middle says nothing."""
        offers, room = [], self.app.size.width
        for offer in offers_of(self.screen):
            room -= len(offer.shown_key) + len(offer.label) + _AROUND
            if room < 0:
                break
            offers.append(offer)
        return offers
