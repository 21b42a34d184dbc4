"""Lines of text; that above a list filters it, and the arrows move through the list."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.content import Content
from textual.css.styles import RulesMap
from textual.message import Message
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget
from textual.widgets import Input, OptionList

from eaglechat.tui.commands.keys import bindings_of, moves, run_own_key

_WIDE = 1000


class Row(Visual):
    """Lines that are made when they are drawn, for the width that they get: of a long list most
    never are."""

    def __init__(self, build: Callable[[int], Content], height: int | None = 1) -> None:
        """Without a `height` they are made to be counted, too."""
        self._build, self._height = build, height

    @property
    def plain(self) -> str:
        """The text that a filter searches."""
        return self._build(_WIDE).plain

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self._build(width).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._height or len(self._build(width).split("\n"))


class Rows(OptionList):
    """A list of texts without markup."""

    DEFAULT_CSS = """
    Rows {
        text-wrap: nowrap;
        text-overflow: ellipsis;
        scrollbar-size-vertical: 1;
    }
    Rows > .option-list--option-disabled {
        color: $foreground;
    }
    Rows > .option-list--option-highlighted, Rows:focus > .option-list--option-highlighted {
        background: $primary 25%;
        color: $foreground;
        text-style: none;
    }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, compact=True, markup=False)

    def action_page_up(self) -> None:
        # Textual's raises a KeyError in a list that was filled while it had no place on the screen.
        if self.scrollable_content_region:
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        if self.scrollable_content_region:
            super().action_page_down()  # type: ignore[no-untyped-call]


class Field(Input):
    """A line of text. What is typed behind the key that submits it is for what that opens: it goes
    on to the screen, behind `Submitted`."""

    is_waiting = False
    """Whether the screen has not answered the last `Submitted` yet."""

    async def _on_key(self, event: events.Key) -> None:
        if self.is_waiting:
            event.prevent_default()
        else:
            await run_own_key(self, event)

    def _on_paste(self, event: events.Paste) -> None:
        if self.is_waiting:
            event.prevent_default()

    async def take(self, event: events.Key) -> None:
        """Do what a key does here, also before the focus has come."""
        if not self.has_focus and self.select_on_focus:
            # The focus would do so, behind this key.
            self.action_select_all()
            self.select_on_focus = False
        if event.is_printable and event.character:
            self.replace(event.character, *self.selection)
        elif self.has_focus:
            await run_own_key(self, event)
            return
        elif event.key == "backspace":
            self.action_delete_left()
        elif event.key == "enter":
            await self.action_submit()
        else:
            return
        event.stop()

    async def action_submit(self) -> None:
        self.is_waiting = True
        await super().action_submit()

    def post_message(self, message: Message) -> bool:
        if isinstance(message, Input.Changed | Input.Submitted) and isinstance(self.parent, Widget):
            # Not behind the keys that are queued here: those go up, too.
            return self.check_message_enabled(message) and self.parent.post_message(message)
        return super().post_message(message)


class Filter(Field):
    """Has the focus instead of its list; `Submitted` means that the highlighted row is chosen."""

    BINDINGS = [
        *bindings_of("list"),
        *moves(
            {
                "up": "row('cursor_up')",
                "down": "row('cursor_down')",
                "pageup": "row('page_up')",
                "pagedown": "row('page_down')",
                "home": "row('first')",
                "end": "row('last')",
                "escape": "empty",
            }
        ),
    ]

    def __init__(self, rows: Rows, placeholder: str) -> None:
        super().__init__(placeholder=placeholder, id="filter", compact=True)
        self._rows = rows
        self._chosen_with: str | None = None
        """The text with which a row was chosen last."""
        rows.can_focus = False

    @property
    def words(self) -> list[str]:
        """The words that every shown row must contain."""
        return self.value.casefold().split()

    async def action_submit(self) -> None:
        self._chosen_with = self.value
        await super().action_submit()

    def take_ahead(self) -> str:
        """Remove what was typed behind the key that chose a row, and return it: it was meant for
        what opens."""
        before, self._chosen_with = self._chosen_with, None
        if before is None or not self.value.startswith(before):
            return ""
        ahead, self.value = self.value[len(before) :], before
        return ahead

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "row":
            return None if self._rows.option_count < 2 else True
        # Without text to clear, the key is the screen's.
        return bool(self.value) if action == "empty" else True

    def action_row(self, action: str) -> None:
        getattr(self._rows, f"action_{action}")()
        if self._rows.highlighted is None:
            # A page up ended on a heading that has only headings before it.
            self._rows.action_first()

    def action_empty(self) -> None:
        self.value = ""
