"""The settings screen: a line for each setting of the model. A change applies at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from eaglechat.settings.description import (
    SettingDoc,
    WrongValueError,
    describe,
    parse,
    wanted,
    written,
)
from eaglechat.tui.commands.keys import moves
from eaglechat.tui.screens.dialogs import Ask, ListDialog
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import MUTED
from eaglechat.words.wording import VISIBLE_WHITESPACE

_NOTES = {
    "speculation": "for new chats; a pair can have its own n_draft_max",
    "engine": "from the next load; the command from the next start",
}
_NAME_CELLS = 18
_WORDS_CELLS = 48
"""The longest row of words that fits beside a name in 80 columns."""


class SettingsScreen(ListDialog[None, SettingDoc]):
    """Every setting of `settings.describe()`. Typing filters them; the help is of the highlighted
    one."""

    KEYS = "{list.choose} changes, ← → other value, {dialog.back} closes"
    BINDINGS = moves({"left": "step(-1)", "right": "step(1)"}, priority=True)

    def __init__(self, services: Services, at: str = "") -> None:
        """`at` names the setting that is highlighted at first."""
        super().__init__()
        self._settings, self._loaded = services.settings, services.engine.loaded
        self._at = at

    def content(self) -> ComposeResult:
        yield from super().content()
        yield Static(id="meaning", classes="muted", markup=False)

    def on_mount(self) -> None:
        self.frame.border_title = f"Settings, saved in {self._settings.file}"
        self.go_to(self._at)

    # Showing

    def go_to(self, name: str) -> None:
        """Show all settings, and highlight the one of this name."""
        with self.prevent(Input.Changed):
            self.words.clear()
        self._list(next((doc for doc in describe() if doc.name == name), None))

    @on(Input.Changed, "#filter")
    def _filtered(self) -> None:
        self._list(None if self.words.words else self.highlighted)

    def _list(self, highlight: SettingDoc | None) -> None:
        self.fill(self._found(), highlight)
        if not self.things:
            said = f"No setting has “{' '.join(self.words.words)}” in its name, value or help."
            self.fill([(None, Content.styled(said, MUTED))])

    def _found(self) -> Iterator[tuple[SettingDoc | None, Content]]:
        table = ""
        for doc in describe():
            everything = f"{doc.name} {self._row(doc).plain} {self._meaning(doc)}".casefold()
            if not all(word in everything for word in self.words.words):
                continue
            if doc.table != table:
                table = doc.table
                note = f"  {_NOTES[table]}" if table in _NOTES else ""
                yield None, Content.assemble((table.capitalize(), "bold $primary"), (note, MUTED))
            yield doc, self._row(doc)

    def _row(self, doc: SettingDoc) -> Content:
        return Content.assemble((f"  {doc.key:{_NAME_CELLS}}", ""), *self._control(doc))

    def _control(self, doc: SettingDoc) -> Iterator[tuple[str, str]]:
        value, words = self._value(doc), self._settings.choices(doc)
        if not words:
            text = "" if value is None else written(value).translate(VISIBLE_WHITESPACE)
            yield (text, "bold") if text else (self._unset(doc), MUTED)
        elif sum(len(word) + 2 for word in words) > _WORDS_CELLS:
            yield (f"← {value} →", "bold")
        else:
            for word in words:
                yield (f"[{word}]", "bold") if word == value else (f" {word} ", MUTED)

    def _value(self, doc: SettingDoc) -> Any:
        """The value in force, a word for a switch; None if it is left to the model."""
        if doc.follows_model and doc.name not in self._settings.current.given:
            return None
        return self._settings.value(doc)

    def _unset(self, doc: SettingDoc) -> str:
        """What stands for an empty value: that in force where the model decides."""
        if not doc.follows_model:
            return "empty"
        recommended = self._loaded.sampling.get(doc.key) if self._loaded else None
        if recommended is None:
            return f"{written(doc.default)} (default)"
        return f"{written(recommended)} (model's)"

    def _meaning(self, doc: SettingDoc) -> str:
        fits = wanted(doc)
        fits = f" {fits[0].upper()}{fits[1:]}." if doc.range or doc.example else ""
        if doc.follows_model:
            unset = f"Empty: as the model's file recommends, else {written(doc.default)}."
        elif doc.kind is bool:
            unset = f"Default: {'on' if doc.default else 'off'}."
        else:
            unset = f"Default: {written(doc.default) or 'empty'}."
        return f"{doc.description}{fits} {unset}"

    @on(OptionList.OptionHighlighted)
    def _show_meaning(self) -> None:
        doc = self.highlighted
        self.query_one("#meaning", Static).update(self._meaning(doc) if doc else "")

    # Changing

    def choose(self, thing: SettingDoc | None) -> None:
        if thing is not None:
            self.action_step(1)

    def _ask(self, doc: SettingDoc) -> None:
        value = self._value(doc)

        def refuses(typed: str) -> str:
            try:
                _parsed(doc, typed)
            except WrongValueError as error:
                return f"Not saved: {error}"
            return ""

        def take(typed: str) -> None:
            if (parsed := _parsed(doc, typed)) != value:
                self._settings.change(doc.table, doc.key, parsed)
                self._draw(doc)

        shown = "" if value is None else written(value)
        question = Ask(
            doc.name, self._meaning(doc), written=shown, unset=self._unset(doc), refuses=refuses
        )
        self.open(question, take)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "step":
            return self.highlighted is not None
        return super().check_action(action, parameters)

    def action_step(self, by: int) -> None:
        """Take the next of a few values, or the one before; type one where there are many."""
        doc = self.highlighted
        assert doc is not None
        choices = self._settings.choices(doc)
        if not choices:
            self._ask(doc)
            return
        word = choices[(choices.index(self._value(doc)) + by) % len(choices)]
        self._settings.choose(doc, word)
        self._draw(doc)

    def _draw(self, doc: SettingDoc) -> None:
        self.rows.replace_option_prompt_at_index(self.things.index(doc), self._row(doc))


def _parsed(doc: SettingDoc, typed: str) -> Any:
    """None leaves the value to the model. Raises WrongValueError."""
    return None if doc.follows_model and not typed.strip() else parse(doc, typed)
