"""The list of roles to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual import on
from textual.content import Content
from textual.widgets import Input, OptionList

from eaglechat.chat.writing.roles import NO_ROLE, is_name, load_roles
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.screens.list_dialog import ListDialog
from eaglechat.tui.widgets.readouts import MUTED


@dataclass(frozen=True)
class RoleChoice:
    """The role that was chosen, to take it or to write it in the editor."""

    name: str
    is_to_write: bool = False


class RolesScreen(ListDialog[RoleChoice]):
    """Typing filters; a name that no role has is that of a new one."""

    BINDINGS = bindings_of("roles")

    HEADING = "Roles"

    def __init__(self, directory: Path, typed: str = "") -> None:
        """The filter begins with `typed`."""
        super().__init__()
        self._directory, self._typed = directory, typed
        roles, self._problems = load_roles(directory)
        self._named = [(NO_ROLE, "the settings as they are")]
        self._named += [(role.name, role.description) for role in roles]

    def on_mount(self) -> None:
        self.words.value = self._typed
        said = [f"{one}; the role is skipped." for one in self._problems]
        said.append(f"Type a new name to write a role; they are in {self._directory}.")
        self.say("\n".join(said))
        self._refresh_list()

    @on(Input.Changed)
    def _refresh_list(self) -> None:
        words = self.words
        words.show(
            Content.assemble((name, "bold"), "  ", (description, MUTED))
            for name, description in self._named
        )
        does = "{list.choose} chooses" if words.chosen is not None else "{list.choose} writes it"
        self.offer(f"{does}, {{chat.editor}} edits the file, {{dialog.back}} back")

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        chosen = self.words.chosen
        if chosen is not None:
            self.dismiss(RoleChoice(self._named[chosen][0]))
        else:
            self.action_editor()

    def action_editor(self) -> None:
        """Write the highlighted role, or one with the name that is typed."""
        words = self.words
        name = words.value.strip() if words.chosen is None else self._named[words.chosen][0]
        if is_name(name) and name != NO_ROLE:
            self.dismiss(RoleChoice(name, is_to_write=True))
        else:
            self.notify(f"“{name}” cannot be the name of a role.")
