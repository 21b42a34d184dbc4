"""The settings screen: one field for each setting of the model. A change applies at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Checkbox, Input, Select, Static

from eaglechat.settings import SettingDoc, describe
from eaglechat.settings.description import WrongValueError, parse, wanted, written
from eaglechat.tui.commands.registry import ENTER, TAB, with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.panel.tick import Tick

_NOTES = {
    "speculation": " (for new chats; a pair can have its own n_draft_max)",
    "engine": " (from the next load; the command from the next start)",
}

_AT_ONCE = 12
"""Fields that fit on the screen at first; the rest is made after the first frame."""


class SettingsScreen(EagleModal[None]):
    """Every setting of `settings.describe()`."""

    CSS_PATH = "settings.tcss"

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._settings, self._loaded = services.settings, services.engine.loaded
        self._fields = self._all_fields()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="settings") as dialog:
            dialog.border_title = "Settings"
            dialog.border_subtitle = with_keys(
                f"{TAB} moves, {ENTER} applies, {{dialog.back}} closes"
            )
            with VerticalScroll(id="fields", can_focus=False):
                yield from islice(self._fields, _AT_ONCE)
            yield Static(
                f"Saved in {self._settings.file}", classes="muted", id="where", markup=False
            )
        yield TooSmall()

    def on_mount(self) -> None:
        # Styling all of them before the first frame would take most of a second.
        self.call_after_refresh(self.query_one("#fields").mount_all, self._fields)

    def _all_fields(self) -> Iterator[Widget]:
        table = ""
        for doc in describe():
            if doc.table != table:
                table = doc.table
                heading = table.capitalize() + _NOTES.get(table, "")
                yield Static(heading, classes="heading", markup=False)
            yield SettingField(doc, self._value(doc), self._settings.change, self._recommended(doc))

    def _value(self, doc: SettingDoc) -> Any:
        """The value in force; None if it is left to the model."""
        if doc.follows_model and doc.name not in self._settings.current.given:
            return None
        return getattr(getattr(self._settings.current, doc.table), doc.key)

    def _recommended(self, doc: SettingDoc) -> Any:
        """The value that the loaded model recommends, if it recommends one."""
        return getattr(self._loaded.sampling, doc.key, None) if self._loaded else None

    def action_back(self) -> None:
        fields = [*self.query(SettingField)]
        for field in fields:
            field.apply()
        if refused := [field.refused for field in fields if field.refused]:
            said = "\n".join(refused)
            self.notify(said, title="Not saved", severity="warning", markup=False)
        self.dismiss(None)


class SettingSelect(Select[str]):
    """One of a few values."""

    async def on_event(self, event: events.Event) -> None:
        # Closed while it is made, it has no label to show its value in.
        if self.query("#label") or not isinstance(event, events.Mount):
            await super().on_event(event)


class SettingField(Vertical):
    """One setting: its name, a control, its meaning, and why a value is refused."""

    def __init__(
        self,
        doc: SettingDoc,
        value: Any,
        take: Callable[[str, str, Any], None],
        recommended: Any = None,
    ) -> None:
        """`take` gets the table, the key and each new valid value. None leaves the setting to the
        model, whose file may have `recommended` a value."""
        super().__init__()
        self._doc, self._value = doc, value
        self._take_over = take
        self._recommended = recommended
        self.refused = ""
        """The setting and why what is typed is refused; empty if it is valid."""

    def compose(self) -> ComposeResult:
        with Horizontal(classes="setting"):
            yield Static(self._doc.key, classes="setting-name", markup=False)
            yield self._control()
        yield Static(self._meaning(), classes="setting-meaning", markup=False)
        yield Static("", classes="setting-problem", markup=False)

    def _control(self) -> Widget:
        doc = self._doc
        if doc.kind is bool:
            return Tick("", self._value)
        if doc.name == "interface.theme":
            names = sorted(self.app.available_themes)
            chosen = self._value if self._value in names else self.app.theme
            return SettingSelect(
                [(name, name) for name in names], value=chosen, allow_blank=False, compact=True
            )
        if doc.choices:
            choices = [(choice, choice) for choice in doc.choices]
            return SettingSelect(choices, value=self._value, allow_blank=False, compact=True)
        value = "" if self._value is None else written(self._value)
        return Input(value, self._unset(), compact=True, name=doc.name)

    def _unset(self) -> str:
        """The placeholder: the value in force while the field is empty."""
        if not self._doc.follows_model:
            return ""
        if self._recommended is None:
            return f"{written(self._doc.default)} (default)"
        return f"{written(self._recommended)} (model's)"

    def _meaning(self) -> str:
        doc = self._doc
        fits = wanted(doc)
        fits = f" {fits[0].upper()}{fits[1:]}." if doc.range or doc.example else ""
        if doc.follows_model:
            unset = f"Empty: as the model's file recommends, else {written(doc.default)}."
        else:
            unset = f"Default: {written(doc.default) or 'empty'}."
        return f"{doc.description}{fits} {unset}"

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
        """Put what is typed in force if it is valid."""
        for field in self.query(Input):
            try:
                is_unset = self._doc.follows_model and not field.value.strip()
                self._take(None if is_unset else parse(self._doc, field.value))
            except WrongValueError as error:
                self._complain(str(error))

    @on(Input.Changed)
    def _typing(self, event: Input.Changed) -> None:
        event.stop()
        self._complain("")

    def _take(self, value: Any) -> None:
        self._complain("")
        if value != self._value:
            self._value = value
            self._take_over(self._doc.table, self._doc.key, value)

    def _complain(self, reason: str) -> None:
        self.query_one(".setting-problem", Static).update(reason)
        self.set_class(bool(reason), "-wrong")
        self.refused = f"{self._doc.key}: {reason}" if reason else ""
