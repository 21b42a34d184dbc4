"""The help: every key of a screen, and the words that the chat uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from eaglechat.tui.commands.bindings import active_commands
from eaglechat.tui.commands.registry import name_of, with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.texts.wording import KINDS_OF_TOKENS

TERM_CELLS = 16
"""Cells of the first column."""
_WORDS = [
    ("target", "the model you chat with; every token of the reply is its choice"),
    ("draft", "a small model that guesses the target's next tokens"),
    ("round", "the draft guesses, the target verifies all guesses in one pass"),
    *KINDS_OF_TOKENS,
    ("n_draft_max", "the most tokens drafted per round; 0 decodes plainly"),
    ("p_min", "drafting stops at a token less probable than this"),
    ("prefill", "reading the prompt; what the KV cache holds is not read again"),
]


class HelpScreen(EagleModal[None]):
    """The active commands of a screen with their keys, and a glossary."""

    CSS_PATH = "help.tcss"

    def __init__(self, about: Screen[Any]) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", id="help") as dialog:
            dialog.border_title = "Help"
            dialog.border_subtitle = with_keys("{dialog.back} closes")
            yield Static("Keys", classes="heading")
            yield Definitions([*self._keys()])
            yield Static("Words", classes="heading above")
            yield Definitions(_WORDS)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one("#help").focus()

    def _keys(self) -> Iterator[tuple[str, str]]:
        """Pairs of keys and what they do."""
        for active in active_commands(self._about):
            yield ", ".join(name_of(key) for key in active.keys[:2]), active.command.help


class Definitions(Static):
    """Terms and their meanings in two columns. It is one widget because two widgets a row take half
    a second to lay out."""

    COMPONENT_CLASSES = {"definitions--term"}

    def __init__(self, rows: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.rows = rows

    def render(self) -> Table:
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=TERM_CELLS, style=self.get_component_rich_style("definitions--term"))
        grid.add_column(ratio=1)
        for term, meaning in self.rows:
            grid.add_row(Text(term), Text(meaning))
        return grid
