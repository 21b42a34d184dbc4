"""Dialogs of one kind each: a text that is read, a question, a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, TypeVar

from rich.table import Table
from rich.text import Text
from textual import events, getters, on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from eaglechat.tui.commands.keys import ENTER, bindings_of, moves, run_own_key
from eaglechat.tui.screens.base import EagleModal, Result
from eaglechat.tui.widgets.filter import Field, Filter, Row, Rows

Thing = TypeVar("Thing")
Shown = TypeVar("Shown", bound=Content | Row)


class TextDialog(EagleModal[Result]):
    """A text to read, which scrolls."""

    scroll = getters.query_one(VerticalScroll)

    def content(self) -> ComposeResult:
        with VerticalScroll(classes="dialog-text"):
            yield Static(id="text", markup=False)

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
        # Two different questions may be open at once, the same one only once.
        super().__init__(name=f"{title} {text} {does}")
        self._title, self._text, self._does, self._written = title, text, does, written
        self._unset, self._refuses = unset, refuses

    def content(self) -> ComposeResult:
        if self._written is not None:
            yield Field(self._written, placeholder=self._unset, compact=True)
        yield from super().content()

    def on_mount(self) -> None:
        self.frame.border_title = self._title
        self.show(self._text)
        if self._written is not None:
            self.query_one(Field).focus()
            self.frame.offer(f"{ENTER} takes it, {{dialog.back}} back")
        else:
            self.scroll.focus()
            self.frame.offer(
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


class ListDialog(EagleModal[Result], Generic[Result, Thing]):
    """A list of things, a row each, with a line that says something about it, and mostly a filter
    above it. A screen of its own fills it, and says what choosing a thing does."""

    KEYS: ClassVar[str] = "{list.choose} chooses, {dialog.back} back"
    PLACEHOLDER: ClassVar[str] = "type to filter"
    """What stands in the empty filter; empty: there is no filter, and the list has the focus."""
    SAYS: ClassVar[str] = ""
    """What the line says at first."""

    words, rows = getters.query_one(Filter), getters.query_one(Rows)
    things: tuple[Thing | None, ...] = ()
    """What the rows stand for; None for a heading."""

    def content(self) -> ComposeResult:
        rows = Rows(id="list")
        if self.PLACEHOLDER:
            yield Filter(rows, self.PLACEHOLDER)
        said = Static(self.SAYS, id="said", classes="muted", markup=False)
        said.display = bool(self.SAYS)
        yield said
        yield rows

    def on_mount(self) -> None:
        self.set_focus(self.words if self.PLACEHOLDER else self.rows)

    async def typed(self, event: events.Key) -> None:
        if self.PLACEHOLDER:
            await super().typed(event)
        elif self.focused is self.rows:
            await run_own_key(self.rows, event)

    def say(self, text: str, *, bad: bool = False) -> None:
        said = self.query_one("#said", Static)
        said.update(text)
        said.display = bool(text)
        said.set_class(bad, "problem")

    def fill(
        self,
        rows: Iterable[tuple[Thing | None, Content | Row | Text | Table]],
        highlight: Thing | None = None,
    ) -> None:
        """List these things, and highlight one of them, or else the first."""
        shown = [*rows]
        self.things = tuple(thing for thing, _ in shown)
        self.rows.clear_options()
        self.rows.add_options(Option(row, disabled=thing is None) for thing, row in shown)
        if highlight is not None and highlight in self.things:
            self.rows.highlighted = self.things.index(highlight)
        else:
            self.rows.action_first()

    def fitting(self, rows: Iterable[tuple[Thing, Shown]]) -> Iterable[tuple[Thing, Shown]]:
        """Those of these rows in which all the words of the filter are."""
        words = self.words.words
        return (row for row in rows if all(word in row[1].plain.casefold() for word in words))

    @property
    def highlighted(self) -> Thing | None:
        place = self.rows.highlighted
        return self.things[place] if place is not None and place < len(self.things) else None

    @on(Input.Submitted, "#filter")
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        self.choose(self.highlighted)

    def choose(self, thing: Thing | None) -> None:
        """This one was chosen, by its key or a click; None if no row is highlighted."""
        raise NotImplementedError
