"""The list of roles to choose from."""

from __future__ import annotations

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from eaglechat.chat.writing.roles import NO_ROLE, load_roles
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.commands.slash import SLASH
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.texts.failures import wrong_role
from eaglechat.tui.widgets.filter import Filter
from eaglechat.tui.widgets.readouts import MUTED


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
        roles, self._problems = load_roles(directory)
        self._named = [(NO_ROLE, "the settings as they are")]
        self._named += [(role.name, role.description) for role in roles]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="roles") as dialog:
            dialog.border_title = "Roles"
            dialog.border_subtitle = with_keys("{list.choose} chooses, {dialog.back} back")
            rows = OptionList(id="list", compact=True)
            yield Filter(rows, id="filter")
            yield rows
            said = [f"{wrong_role(one)}; the role is skipped." for one in self._problems]
            said.append(f"{SLASH}write_role NAME writes one, in {self._directory}.")
            yield Static("\n".join(said), classes="muted", markup=False)
        yield TooSmall()

    def on_mount(self) -> None:
        self._refresh_list()
        self.query_one(Filter).focus()

    @on(Input.Changed)
    def _refresh_list(self) -> None:
        self.query_one(Filter).show(
            Content.assemble((name, "bold"), "  ", (description, MUTED))
            for name, description in self._named
        )

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        chosen = self.query_one(Filter).chosen
        if chosen is not None:
            self.dismiss(self._named[chosen][0])
