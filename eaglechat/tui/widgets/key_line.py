"""The bottom line, with the keys of the focused widget and its screen."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Footer


class KeyLine(Footer):
    """Textual's footer recomposes whenever the focus moves; this one only if its keys changed."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._drawn: Sequence[tuple[Binding, bool]] | None = None

    def compose(self) -> ComposeResult:
        if self._bindings_ready:
            self._drawn = self._keys()
        yield from super().compose()

    async def recompose(self) -> None:
        if self.is_attached and self._keys() != self._drawn:
            await super().recompose()

    def _keys(self) -> Sequence[tuple[Binding, bool]]:
        active = self.screen.active_bindings.values()
        return [(one.binding, one.enabled) for one in active if one.binding.show]
