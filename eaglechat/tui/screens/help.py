"""Every key of a screen, and what the numbers of the chat mean."""

from __future__ import annotations

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from eaglechat.tui.screens.base import EagleModal, TooSmall

_WORDS = [
    ("target", "the model you chat with; every token of the reply is its choice"),
    ("draft", "a small model that guesses the target's next tokens"),
    ("round", "the draft guesses, the target verifies all guesses in one pass"),
    ("accepted", "a guess the target agreed with: a token for free"),
    ("rejected", "a guess it did not agree with; guesses after it are not looked at"),
    ("correction", "the target's own token in place of the rejected one"),
    ("bonus", "the target's extra token after a wholly accepted draft"),
    ("plain", "a token decoded without any draft"),
    ("n_draft_max", "most tokens guessed in a round; 0 decodes plainly"),
    ("p_min", "stop guessing at a token the draft gives less probability"),
    ("prefill", "reading the prompt; what the KV cache holds is not read again"),
]

_KEY_NAMES = {
    "escape": "Esc",
    "enter": "Enter",
    "plus": "+",
    "minus": "-",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "equals_sign": "=",
    "end": "End",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}


class HelpScreen(EagleModal[None]):
    """Keys and words; any of F1, Esc and Enter closes it."""

    CSS_PATH = "help.tcss"

    BINDINGS = [
        Binding("escape,f1,enter", "dismiss", "Close", id="help.close", tooltip="Close the help"),
    ]

    def __init__(self, about: Screen[object]) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", id="help") as dialog:
            dialog.border_title = "Help"
            dialog.border_subtitle = "Esc closes"
            yield Static("Keys", classes="heading")
            yield from (_row(keys, meaning) for keys, meaning in self._keys())
            yield Static("Words", classes="heading above")
            yield from (_row(word, meaning) for word, meaning in _WORDS)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one("#help").focus()

    def _keys(self) -> Iterator[tuple[str, str]]:
        """Keys and what they do: of the focused widget, of the screen, of the app."""
        focused = self._about.focused
        seen: set[str] = set()
        for node in (focused, self._about, self.app):
            for binding in type(node).BINDINGS if node is not None else ():
                if isinstance(binding, tuple) or not binding.tooltip or binding.action in seen:
                    continue
                seen.add(binding.action)
                keys = [key_name(key) for key in binding.key.split(",")[:2]]
                yield ", ".join(keys), str(binding.tooltip)
        yield "Ctrl+P", "Every command by its name"


def key_name(key: str) -> str:
    """A key as a keyboard writes it."""
    *modifiers, last = key.split("+")
    parts = [modifier.capitalize() for modifier in modifiers]
    if len(last) == 1 and not modifiers:
        return last
    name = _KEY_NAMES.get(last) or (last.upper() if len(last) <= 3 else last.capitalize())
    return "+".join([*parts, name])


def _row(term: str, meaning: str) -> Horizontal:
    return Horizontal(
        Static(term, classes="help-term", markup=False),
        Static(meaning, classes="help-meaning", markup=False),
        classes="help-row",
    )
