"""The list of completions above the prompt."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from eaglechat.tui.commands.slash import Completion, CompletionList
from eaglechat.tui.widgets.filter import Rows

_NAME_CELLS = 24


class Completions(Rows):
    """The prompt keeps the focus and sets what is offered."""

    DEFAULT_CSS = """
    Completions {
        height: auto;
        max-height: 9;
        background: $surface;
    }
    """

    can_focus = False

    def __init__(self, take: Callable[[Completion, int], None]) -> None:
        """`take` gets a completion that was clicked, and the column from which on it replaces."""
        super().__init__(id="completions")
        self.display = False
        self.offered: CompletionList | None = None
        self._take = take

    def show(self, offered: CompletionList | None) -> None:
        """Show these completions; None hides the list."""
        if offered == self.offered:
            return
        self.offered = offered
        self.clear_options()
        if offered is not None:
            self.add_options(
                Option(_row(one), disabled=not one.text) for one in offered.completions
            )
            self.action_first()
        self.display = offered is not None

    @property
    def chosen(self) -> Completion | None:
        """The highlighted completion; None if there is none, or it has no text."""
        if self.offered is None or self.highlighted is None:
            return None
        completion = self.offered.completions[self.highlighted]
        return completion if completion.text else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.offered is not None:
            self._take(self.offered.completions[event.option_index], self.offered.start)


def _row(completion: Completion) -> Content:
    shown = f"  {completion.shown:<{_NAME_CELLS}}  "
    style = "bold" if completion.text else "$foreground-muted"
    return Content.assemble((shown, style), (completion.help, "$foreground-muted"))
