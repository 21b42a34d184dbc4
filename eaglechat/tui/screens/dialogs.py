"""Dialogs with a text: one that is read, and one that is a question."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from eaglechat.tui.commands.bindings import bindings_of, moves
from eaglechat.tui.commands.registry import ENTER
from eaglechat.tui.screens.base import EagleModal, Result


class TextDialog(EagleModal[Result]):
    """A text to read, which scrolls."""

    def content(self) -> ComposeResult:
        with VerticalScroll(classes="dialog-text"):
            yield Static(id="text", markup=False)

    @property
    def scroll(self) -> VerticalScroll:
        return self.query_one(VerticalScroll)

    def show(self, text: str | Content) -> None:
        self.query_one("#text", Static).update(text)


class Ask(TextDialog[str]):
    """Says something, and asks: whether to do what `does` names, such as “deletes it”, or for a
    line of text, which begins as `written`. Dismisses with the answer, or None.

    A yes has a key of its own: the key that led here, pressed twice, only closes the question.
    """

    BINDINGS = [*bindings_of("ask"), *moves({"enter": "back"})]

    def __init__(
        self,
        title: str,
        text: str,
        does: str = "",
        written: str | None = None,
        *,
        unset: str = "",
        refuses: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`unset` stands where nothing is written. `refuses` says why a line cannot be taken, or
        nothing."""
        super().__init__()
        self._title, self._text, self._does, self._written = title, text, does, written
        self._unset, self._refuses = unset, refuses

    @property
    def says(self) -> object:
        return self._title, self._text, self._does

    def content(self) -> ComposeResult:
        if self._written is not None:
            yield Input(self._written, placeholder=self._unset, compact=True)
        yield from super().content()

    def on_mount(self) -> None:
        self.head(self._title)
        self.show(self._text)
        if self._written is not None:
            self.query_one(Input).focus()
            self.offer(f"{ENTER} takes it, {{dialog.back}} back")
        else:
            self.scroll.focus()
            self.offer(
                f"{{dialog.agree}} {self._does}, {{dialog.back}} cancels"
                if self._does
                else f"{ENTER} closes"
            )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "agree":
            return bool(self._does)
        return super().check_action(action, parameters)

    def action_agree(self) -> None:
        self.dismiss(self._does)

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        if problem := self._refuses(event.value):
            self.show(Content.assemble((problem, "$text-error"), "\n\n", self._text))
        else:
            self.dismiss(event.value)
