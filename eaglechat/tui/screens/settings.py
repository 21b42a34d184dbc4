"""The settings: a field for each, made from the typed model; a change applies at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Checkbox, Input, Select, Static

from eaglechat.settings import SettingDoc, describe, from_mapping
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.widgets.panel.tick import Tick

_HEADINGS = {
    "generation": "Generation",
    "speculation": "Speculation (for new chats: a pair may keep its own n_draft_max)",
    "engine": "Engine (from the next load; the command from the next start)",
    "interface": "Interface",
}


class SettingsScreen(EagleModal[None]):
    """Every setting of `settings.describe()`."""

    CSS_PATH = "settings.tcss"

    BINDINGS = [
        Binding("escape,f9", "leave", "Close", id="settings.close", tooltip="Close the settings"),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="settings") as dialog:
            dialog.border_title = "Settings"
            dialog.border_subtitle = "Tab moves, Enter applies, Esc closes"
            with VerticalScroll(id="fields", can_focus=False):
                table = ""
                for doc in describe():
                    if doc.table != table:
                        table = doc.table
                        yield Static(_HEADINGS.get(table, table), classes="heading", markup=False)
                    value = getattr(getattr(self.eagle.settings, table), doc.key)
                    yield SettingField(doc, value, self.eagle.change_setting)
            yield Static(
                f"Saved in {self.eagle.config_file}", classes="muted", id="where", markup=False
            )
        yield TooSmall()

    def action_leave(self) -> None:
        for field in self.query(SettingField):
            field.apply()
        self.dismiss(None)


class SettingField(Vertical):
    """A setting: name, control, what it means, and why a value was not taken."""

    def __init__(self, doc: SettingDoc, value: Any, take: Callable[[str, str, Any], None]) -> None:
        """`take` gets table, key and each new value that fits."""
        super().__init__()
        self._doc, self._value = doc, value
        self._take_over = take

    def compose(self) -> ComposeResult:
        with Horizontal(classes="setting"):
            yield Static(self._doc.key, classes="setting-name", markup=False)
            yield self._control()
        yield Static(self._meaning(), classes="setting-meaning", markup=False)
        yield Static("", classes="setting-problem", markup=False)

    def _control(self) -> Widget:
        doc = self._doc
        if doc.type == "bool":
            return Tick("", self._value)
        if doc.name == "interface.theme":
            names = sorted(self.app.available_themes)
            chosen = self._value if self._value in names else self.app.theme
            return Select(
                [(name, name) for name in names], value=chosen, allow_blank=False, compact=True
            )
        if doc.choices:
            choices = [(choice, choice) for choice in doc.choices]
            return Select(choices, value=self._value, allow_blank=False, compact=True)
        return Input(_written(self._value), compact=True, name=doc.name)

    def _meaning(self) -> str:
        doc = self._doc
        span = f" From {doc.span}." if doc.maximum is not None else f" {doc.span}."
        return (
            f"{doc.description}{span if doc.span else ''} "
            f"Default: {_written(doc.default) or 'empty'}."
        )

    @on(Checkbox.Changed)
    def _switched(self, event: Checkbox.Changed) -> None:
        event.stop()
        self._take(event.value)

    @on(Select.Changed)
    def _selected(self, event: Select.Changed) -> None:
        event.stop()
        self._take(event.value)

    @on(Input.Submitted)
    @on(Input.Blurred)
    def apply(self) -> None:
        """Take over what is typed, if it fits."""
        for field in self.query(Input):
            try:
                self._take(_parsed(field.value, self._doc.type))
            except ValueError as error:
                self._complain(f"not {error}")

    @on(Input.Changed)
    def _typing(self, event: Input.Changed) -> None:
        event.stop()
        self._complain("")

    def _take(self, value: Any) -> None:
        doc = self._doc
        _settings, problems = from_mapping({doc.table: {doc.key: value}}, Path())
        self._complain(problems[0].reason if problems else "")
        if not problems and value != self._value:
            self._value = value
            self._take_over(doc.table, doc.key, value)

    def _complain(self, reason: str) -> None:
        self.query_one(".setting-problem", Static).update(reason)
        self.set_class(bool(reason), "-wrong")


def _written(value: Any) -> str:
    """A value as the field shows it; a list as TOML and JSON both write it."""
    if isinstance(value, tuple):
        return json.dumps(list(value)) if value else ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parsed(text: str, type_name: str) -> Any:
    """What is typed, as the setting's type. Raises ValueError with the type's name."""
    text = text.strip()
    if type_name == "str":
        return text
    try:
        if type_name == 'int or "auto"' and text == "auto":
            return text
        if type_name.startswith("int"):
            return int(text)
        if type_name == "float":
            return float(text)
        words = json.loads(text) if text else []
    except ValueError:
        raise ValueError(_TYPE_NAMES[type_name]) from None
    kinds = str if type_name == "list of strings" else (int, float)
    if not isinstance(words, list) or not all(isinstance(word, kinds) for word in words):
        raise ValueError(_TYPE_NAMES[type_name])
    return tuple(words)


_TYPE_NAMES = {
    "int": "a whole number",
    'int or "auto"': "a whole number or auto",
    "float": "a number",
    "list of numbers": "a list such as [3, 1]",
    "list of strings": 'a list such as ["ssh", "gpu-box", "eaglechat", "engine"]',
}
