"""The list of roles to choose from."""

from __future__ import annotations

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from eaglechat.chat.writing.roles import NO_ROLE, load_roles
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.commands.slash import SLASH
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.widgets.filter import Filter


class RolesScreen(EagleModal[str]):
    """Dismisses with the name of a role, or None. Typing filters."""

    DEFAULT_CSS = """
    RolesScreen #list {
        height: auto;
        max-height: 12;
        margin: 1 0;
        border: none;
    }
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._roles, self._problems = load_roles(directory)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="roles") as dialog:
            dialog.border_title = "Roles"
            dialog.border_subtitle = with_keys("{list.choose} chooses, {dialog.back} back")
            rows = OptionList(id="list", compact=True)
            yield Filter(rows, id="filter")
            yield rows
            said = [f"{SLASH}write_role NAME writes one, in {self._directory}."]
            yield Static(
                "\n".join([*map(str, self._problems), *said]), classes="muted", markup=False
            )
        yield TooSmall()

    def on_mount(self) -> None:
        self._refresh_list()
        self.query_one(Filter).focus()

    @on(Input.Changed)
    def _refresh_list(self) -> None:
        rows = self.query_one("#list", OptionList)
        rows.clear_options()
        wanted = self.query_one(Filter).words
        named = [(NO_ROLE, "the settings as they are")]
        named += [(role.name, role.description) for role in self._roles]
        for name, description in named:
            text = f"{name} {description}".casefold()
            if all(word in text for word in wanted):
                row = Content.assemble((name, "bold"), "  ", (description, "$foreground-muted"))
                rows.add_option(Option(row, id=name))
        rows.highlighted = 0 if rows.option_count else None

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        option = self.query_one("#list", OptionList).highlighted_option
        if option is not None:
            self.dismiss(option.id)
