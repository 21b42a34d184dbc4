"""A control on one line, turned by keys, click and wheel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from eaglechat.tui.commands.keys import moves
from eaglechat.tui.themes import MUTED
from eaglechat.tui.widgets.panel.measures import VALUE
from eaglechat.words.wording import NAMES

LABEL_CELLS = 9
OFF_AND_ON = ("off", "on")
_TYPING_S = 1.5
"""A digit that comes sooner after another one belongs to the same number."""
_STYLES = {
    "label": MUTED,
    "word": MUTED,
    "chosen": VALUE,
    "now": VALUE,
    "beyond": "dim $foreground 30%",
}
Look = Literal["words", "number", "switch"]


class Knob(Widget, can_focus=True):
    """A label, and words of which one is chosen. How they look:

    - words: `label    auto [0] 1 2 3 …`; < > mark the word that auto chose.
    - number: `label    - [0.70] +`, where there are too many for a row.
    - switch: `[X] label` or `[ ] label`, for OFF_AND_ON; it reads without colour.
    """

    # The keyboard reaches it; a click leaves the focus to whoever is typing.
    FOCUS_ON_CLICK = False
    BINDINGS = moves(
        {
            "left,down": "step(-1)",
            "right,up": "step(1)",
            "home": "end(-1)",
            "end": "end(1)",
            "space,enter": "next",
        }
    )

    @dataclass
    class Changed(Message):
        """The user chose this word."""

        knob: Knob
        word: str

    def __init__(
        self, label: str, look: Look = "words", *, left_out: Sequence[str] = (), id: str
    ) -> None:
        """Words `left_out` are drawn only while they are chosen, and an ellipsis says that there
        are more; they can be typed, if they are numbers."""
        super().__init__(id=id)
        self._label, self._look = label, look
        self._left_out = frozenset(left_out)
        self.words: tuple[str, ...] = OFF_AND_ON if look == "switch" else ("",)
        self.chosen = self.words[0]
        self._now = self._note = ""
        self._usable = len(self.words)
        self._typed, self._typed_at = "", 0.0

    def show(
        self,
        words: Sequence[str],
        chosen: str,
        *,
        now: str = "",
        usable: int | None = None,
        note: str = "",
    ) -> None:
        """`now` is what auto chose; only the first `usable` words can be chosen; `note` stands
        behind a number."""
        state = (tuple(words), chosen, now, len(words) if usable is None else usable, note)
        if state != (self.words, self.chosen, self._now, self._usable, self._note):
            self.words, self.chosen, self._now, self._usable, self._note = state
            self.refresh()

    def render(self) -> Content:
        styles = {**_STYLES, "label": VALUE} if self.has_focus else _STYLES
        return Content.assemble(*((text, styles[style]) for _, text, style in self._drawn()))

    def _drawn(self) -> Iterator[tuple[str, str, str]]:
        """The pieces of the line: the word that a click on it chooses, its text, its style."""
        if self._look == "switch":
            is_on = self.chosen == OFF_AND_ON[1]
            mark, style = ("X", "chosen") if is_on else (" ", "word")
            yield OFF_AND_ON[not is_on], f"[{mark}] {self._label}", style
            return
        yield "", self._label.ljust(LABEL_CELLS), "label"
        if self._look == "number":
            for word, text in ((self._stepped(-1), "-"), (self._stepped(1), "+")):
                if text == "+":
                    yield "", f" [{self.chosen}] ", "chosen"
                yield word, text, "beyond" if word == self.chosen else "word"
            yield "", f"  {self._note}", "word"
            return
        for word in self.words:
            if word in self._left_out and word not in (self.chosen, self._now):
                continue
            style = "word" if word in self.words[: self._usable] else "beyond"
            style = {self.chosen: "chosen", self._now: "now"}.get(word, style)
            before, after = {"chosen": ("[", "]"), "now": ("<", ">")}.get(style, ("", ""))
            yield word, f"{before}{NAMES.get(word, word)}{after}", style
            yield "", " ", "word"
        if self._left_out.intersection(self.words[: self._usable]):
            yield "", "…", "word"

    def _stepped(self, steps: int) -> str:
        place = self.words.index(self.chosen) if self.chosen in self.words else 0
        return self.words[min(max(place + steps, 0), self._usable - 1)]

    def action_step(self, steps: int) -> None:
        self._take(self._stepped(steps))

    def action_end(self, side: int) -> None:
        self._take(self.words[0 if side < 0 else self._usable - 1])

    def action_next(self) -> None:
        """Take the next word; behind the last comes the first."""
        after = self._stepped(1)
        self._take(after if after != self.chosen else self.words[0])

    def on_key(self, event: events.Key) -> None:
        digit = event.character or ""
        if not digit.isdecimal() or digit not in self.words:
            return
        event.stop()
        now = time.monotonic()
        longer = self._typed + digit if now - self._typed_at < _TYPING_S else digit
        self._typed = longer if longer in self.words else digit
        self._typed_at = now
        self._take(self._typed)

    def on_click(self, event: events.Click) -> None:
        cell = 0
        for word, text, _ in [*self._drawn()]:
            if cell <= event.x < cell + len(text):
                self._take(word)
            cell += len(text)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_step(1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_step(-1)

    def _take(self, word: str) -> None:
        if word != self.chosen and word in self.words[: self._usable]:
            self.chosen = word
            self.refresh()
            self.post_message(self.Changed(self, word))
