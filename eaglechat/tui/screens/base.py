"""The base classes of all screens, with their title bar and frames."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

from rich.cells import cell_len
from textual import events, getters
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Input, Static

from eaglechat.hub.errors import HubError
from eaglechat.tui.commands.keys import ENTER, KEY_PLACEHOLDER, bindings_of, with_keys
from eaglechat.tui.commands.table import BY_ID
from eaglechat.tui.themes import MUTED
from eaglechat.tui.widgets.filter import Field

Result = TypeVar("Result")
Chosen = TypeVar("Chosen")
Value = TypeVar("Value")


class TooSmall(Static):
    """Covers a screen in a terminal that is too small for it."""

    def __init__(self) -> None:
        super().__init__("Terminal\ntoo small\n\nneeds 44x12")


class TitleBar(Widget):
    """The top line: the name of the program, its subject (such as a pair) and its state."""

    subject, state = reactive(""), reactive("")

    def __init__(self, subject: str, *, program: str = "eaglechat ") -> None:
        super().__init__()
        self.set_reactive(TitleBar.subject, subject)
        self._program = program

    def render(self) -> Content:
        left = Content.assemble((self._program, "bold $primary"), (self.subject, MUTED))
        room = max(self.content_size.width - cell_len(self.state) - 1, 0)
        return Content.assemble(left.truncate(room, ellipsis=True, pad=True), f" {self.state}")


class EagleScreen(Screen[Result]):
    _closing_with: tuple[Result | None] | None = None
    _has_begun = False
    _has_opened = False
    """Whether what was sent by a line of this screen opened another one, or closed this one: keys
    that still come here were typed behind it, for the screen on top."""

    async def on_event(self, event: events.Event) -> None:
        # A screen that is closed while it is composed lacks widgets: no handler of its mount or
        # unmount runs.
        if isinstance(event, events.Mount):
            self._has_begun = self.app.is_running and not self._pruning
        if self._has_begun or not isinstance(event, events.Mount | events.Unmount):
            await super().on_event(event)

    @property
    def is_open(self) -> bool:
        """Whether the screen is on the stack; if not, its widgets may be gone."""
        return self in self.app.screen_stack

    @property
    def is_unsaved(self) -> bool:
        """Whether closing the screen would lose something of the user's."""
        return False

    @property
    def is_on_top(self) -> bool:
        """Whether no screen is above it. Textual's `is_current` is also true behind a dialog."""
        return self.app.screen is self

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close this screen, as soon as no other is above it."""
        if not self.is_on_top:
            self._closing_with = (result,)
            return AwaitComplete()
        closing: AwaitComplete = super().dismiss(result)
        return closing

    def on_screen_resume(self) -> None:
        self._has_opened = False
        if self._closing_with is not None:
            self.dismiss(*self._closing_with)

    async def on_key(self, event: events.Key) -> None:
        if not self._has_opened:
            await self.typed(event)
        else:
            event.stop()
            self.app.post_message(events.Key(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        if self._has_opened:
            event.stop()
            self.app.post_message(events.Paste(event.text))

    async def typed(self, event: events.Key) -> None:
        """Keys that come before the line of a list or a question has the focus are for it, and
        those that it passed on, if nothing was opened."""
        for line in self.query(Field):
            if self.focused in (None, line):
                await line.take(event)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        # After the handlers of the screen itself, which may have opened another.
        if isinstance(event.input, Field):
            event.input.is_waiting, self._has_opened = False, not self.is_on_top

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore keys that come before the screen has its widgets."""
        return self.is_mounted and super().check_action(action, parameters)

    def open(
        self, screen: EagleScreen[Chosen], then: Callable[[Chosen], object] | None = None
    ) -> None:
        """Open a screen above this one; `then` gets what is chosen there, if anything is."""
        open_screen(self.app, screen, then)

    def in_background(
        self,
        work: Callable[[], Value],
        then: Callable[[Value], object] | None = None,
        fails: Callable[[Exception], object] | None = None,
    ) -> None:
        """Call `work` in a thread, to wait for the network or the disk; then `then` with what it
        returns, as `later` does. `fails` gets an error that has a sentence for the user instead.

        The thread is a daemon, unlike Textual's workers: quitting does not wait for a network that
        does not answer.
        """

        def run() -> None:
            try:
                value = work()
                if then is not None:
                    self.later(then, value)
            except Exception as error:
                if fails is not None and isinstance(error, OSError | HubError | ValueError):
                    self.later(fails, error)
                else:
                    # Any other ends the app, as in Textual's workers.
                    _post(self.app.call_later, _raise, error)

        threading.Thread(target=run, name="background", daemon=True).start()

    def later(self, call: Callable[..., object], *values: object) -> None:
        """Call it in the thread of the app, which alone touches widgets, unless the screen has
        closed. Any thread may ask for that."""
        if self.is_running:
            _post(self.call_later, _call, partial(call, *values))

    def state_of(self, id: str) -> str:
        """The state of the switch that a command turns, such as `on`; empty if it turns none."""
        return ""

    def leave(self, *, ends: bool = False) -> None:
        """Stop what runs for this screen and save the user's work: the app is about to close it,
        and `ends` then or goes on."""


def _post(call: Callable[..., object], *values: object) -> None:
    with suppress(RuntimeError):  # the app ended meanwhile
        call(*values)


def _call(call: Callable[[], object]) -> None:
    # Without its result: Textual would await that of `dismiss`, which must not be.
    call()


def _raise(bug: Exception) -> None:
    raise bug


def open_screen(
    app: App[Any], screen: EagleScreen[Chosen], then: Callable[[Chosen], object] | None = None
) -> None:
    """Push a screen, unless one of its class and name is open: its key may come twice before it is
    there. `then` gets what the screen dismisses with, unless that is None."""

    def closed(chosen: Chosen | None) -> None:
        if chosen is not None and then is not None:
            then(chosen)

    for shown in app.screen_stack:
        if type(shown) is type(screen) and shown.name == screen.name:
            return
    app.push_screen(screen, closed)


_CORNERS = 6
"""Cells of a border beside what stands in it."""


class Frame(Vertical):
    """The titles in its border are not read as markup: they may be names that others chose."""

    _keys = ""

    def offer(self, keys: str) -> None:
        """Name on the border what can be done, as `clickable` does. Where that has no room, the way
        back stands behind the first ones: keys that are cut in the middle say nothing."""
        self._keys, parts = keys, keys.split(", ")
        room = self.outer_size.width - _CORNERS
        while room > 0 and len(parts) > 2 and len(with_keys(", ".join(parts))) > room:
            del parts[-2]
        self.border_subtitle = clickable(", ".join(parts))

    def on_resize(self) -> None:
        self.offer(self._keys)

    def render_str(self, text_content: str | Content) -> Content:
        return Content(text_content) if isinstance(text_content, str) else text_content


def clickable(text: str) -> Content:
    """What can be done in a dialog, such as `{list.choose} loads, {dialog.back} back`, for its
    border: with the names of the keys, and a click on a part does it."""
    parts = []
    for part in text.split(", "):
        named = [id for id in KEY_PLACEHOLDER.findall(part) if id in BY_ID]
        action = f"app.run_command('{named[0]}')" if named else ""
        if part.startswith(f"{ENTER} "):
            action = "app.simulate_key('enter')"
        does = Style.from_meta({"@click": action}) if action else ""
        parts.append(Content.styled(with_keys(part), does))
    return Content(", ").join(parts)


class EagleModal(ModalScreen[Result], EagleScreen[Result]):
    """A dialog of this app: a frame, on whose border stands what can be done."""

    BINDINGS = bindings_of("dialog")
    HEADING: ClassVar[str] = ""
    KEYS: ClassVar[str] = "{dialog.back} back"
    frame = getters.query_one(Frame)

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog") as frame:
            frame.border_title = self.HEADING
            frame.offer(self.KEYS)
            yield from self.content()
        yield TooSmall()

    def content(self) -> ComposeResult:
        """What stands in the frame."""
        raise NotImplementedError

    def action_back(self) -> None:
        self.dismiss()
