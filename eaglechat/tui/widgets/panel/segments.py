"""A row of words of which one is chosen, by keys, click and wheel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from textual import events
from textual.content import Content

from eaglechat.tui.widgets.panel.knob import Knob

_TYPING_S = 1.5
"""A digit that comes sooner after another one belongs to the same number."""


class Segments(Knob):
    """`label  auto [0] 1 2 3`: the chosen word in brackets. < > mark the word that auto chose."""

    COMPONENT_CLASSES = {"segments--word", "segments--chosen", "segments--now", "segments--beyond"}

    def __init__(
        self,
        label: str,
        *,
        names: Mapping[str, str] | None = None,
        left_out: Sequence[str] = (),
        id: str,
        tooltip: str,
    ) -> None:
        """`names` are written in place of words. Words `left_out` are drawn only while they are
        chosen, and an ellipsis says that there are more; they can be typed, if they are numbers."""
        super().__init__(label, id=id, tooltip=tooltip)
        self._names = names or {}
        self._left_out = frozenset(left_out)
        self.words: tuple[str, ...] = ()
        self.chosen = ""
        self._now = ""
        self._usable = 0
        self._typed, self._typed_at = "", 0.0

    def show(
        self, words: Sequence[str], chosen: str, *, now: str = "", usable: int | None = None
    ) -> None:
        """`now` is what auto chose; only the first `usable` words can be chosen."""
        state = (tuple(words), chosen, now, len(words) if usable is None else usable)
        if state != (self.words, self.chosen, self._now, self._usable):
            self.words, self.chosen, self._now, self._usable = state
            self.refresh()

    def render(self) -> Content:
        line = Content.styled(self._label, self.get_visual_style("knob--label"))
        for word, name in self._drawn():
            style = self.get_visual_style(f"segments--{self._kind(word)}")
            line = Content.assemble(line, (name, style), " ")
        return line

    def _kind(self, word: str) -> str:
        if word == self.chosen:
            return "chosen"
        if word == self._now:
            return "now"
        is_usable = not word or word in self.words[: self._usable]
        return "word" if is_usable else "beyond"

    def _drawn(self) -> list[tuple[str, str]]:
        """The drawn words, and how they are written."""
        drawn: list[tuple[str, str]] = []
        for word in self.words:
            if word in self._left_out and word not in (self.chosen, self._now):
                continue
            before, after = {self.chosen: ("[", "]"), self._now: ("<", ">")}.get(word, ("", ""))
            drawn.append((word, f"{before}{self._names.get(word, word)}{after}"))
        if self._left_out.intersection(self.words[: self._usable]):
            drawn.append(("", "…"))
        return drawn

    def action_step(self, steps: int) -> None:
        place = self.words.index(self.chosen) if self.chosen in self.words else 0
        self._take(self.words[min(max(place + steps, 0), self._usable - 1)])

    def action_end(self, side: int) -> None:
        self._take(self.words[0 if side < 0 else self._usable - 1])

    def on_key(self, event: events.Key) -> None:
        digit = event.character or ""
        if not digit.isdecimal() or digit not in self.words:
            return
        event.stop()
        now = time.monotonic()
        longer = self._typed + digit if now - self._typed_at < _TYPING_S else digit
        self._typed = longer if longer in self.words else digit
        self._typed_at = now
        if self._typed in self.words[: self._usable]:
            self._take(self._typed)

    def on_click(self, event: events.Click) -> None:
        cell = len(self._label)
        for word, name in self._drawn():
            if cell <= event.x < cell + len(name):
                if word in self.words[: self._usable]:
                    self._take(word)
                return
            cell += len(name) + 1

    def _take(self, word: str) -> None:
        if word != self.chosen:
            self.chosen = word
            self.refresh()
            self.post_message(self.Changed(self, word))
