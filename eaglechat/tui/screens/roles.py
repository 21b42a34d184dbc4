"""The list of roles to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from eaglechat.chat.writing.roles import NO_ROLE, is_name, load_roles
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.widgets.filter import Filter, Rows
from eaglechat.tui.widgets.frame import Frame, clickable
from eaglechat.tui.widgets.readouts import MUTED
from eaglechat.words.failures import wrong_role


@dataclass(frozen=True)
class RoleChoice:
    """The role that was chosen, to take it or to write it in the editor."""

    name: str
    is_to_write: bool = False


class RolesScreen(EagleModal[RoleChoice]):
    """Typing filters; a name that no role has is that of a new one."""

    BINDINGS = bindings_of("roles")

    DEFAULT_CSS = """
    RolesScreen #list {
        height: auto;
        max-height: 12;
        margin: 1 0;
        border: none;
    }
    """

    def __init__(self, directory: Path, typed: str = "") -> None:
        """The filter begins with `typed`."""
        super().__init__()
        self._directory, self._typed = directory, typed
        roles, self._problems = load_roles(directory)
        self._named = [(NO_ROLE, "the settings as they are")]
        self._named += [(role.name, role.description) for role in roles]

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog", id="roles") as dialog:
            dialog.border_title = "Roles"
            rows = Rows(id="list")
            yield Filter(rows, id="filter")
            yield rows
            said = [f"{wrong_role(one)}; the role is skipped." for one in self._problems]
            said.append(f"Type a new name to write a role; they are in {self._directory}.")
            yield Static("\n".join(said), classes="muted", markup=False)
        yield TooSmall()

    def on_mount(self) -> None:
        words = self.query_one(Filter)
        words.value = self._typed
        words.focus()
        self._refresh_list()

    @on(Input.Changed)
    def _refresh_list(self) -> None:
        words = self.query_one(Filter)
        words.show(
            Content.assemble((name, "bold"), "  ", (description, MUTED))
            for name, description in self._named
        )
        does = "{list.choose} chooses" if words.chosen is not None else "{list.choose} writes it"
        self.query_one("#roles").border_subtitle = clickable(
            f"{does}, {{chat.editor}} edits the file, {{dialog.back}} back"
        )

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        chosen = self.query_one(Filter).chosen
        if chosen is not None:
            self.dismiss(RoleChoice(self._named[chosen][0]))
        else:
            self.action_editor()

    def action_editor(self) -> None:
        """Write the highlighted role, or one with the name that is typed."""
        words = self.query_one(Filter)
        name = words.value.strip() if words.chosen is None else self._named[words.chosen][0]
        if is_name(name) and name != NO_ROLE:
            self.dismiss(RoleChoice(name, is_to_write=True))
        else:
            self.notify(f"“{name}” cannot be the name of a role.")
