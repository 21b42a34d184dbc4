"""The list of roles to choose from."""

from __future__ import annotations

from pathlib import Path

from textual import on
from textual.content import Content
from textual.widgets import Input

from eaglechat.chat.writing.roles import NO_ROLE, TEMPLATE, is_name, load_roles
from eaglechat.paths import write_atomically
from eaglechat.tui.commands.keys import bindings_of
from eaglechat.tui.screens.dialogs import ListDialog
from eaglechat.tui.services.desktop import in_editor
from eaglechat.tui.themes import MUTED


class RolesScreen(ListDialog[str, str]):
    """Dismisses with the name of a role, or NO_ROLE. Typing filters; another name is that of a new
    role."""

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
        rows = (
            (name, Content.assemble((name, "bold"), "  ", (description, MUTED)))
            for name, description in self._named
        )
        self.fill(self.fitting(rows))
        does = "{list.choose} chooses" if self.highlighted else "{list.choose} writes it"
        self.frame.offer(f"{does}, {{chat.editor}} edits the file, {{dialog.back}} back")

    def choose(self, thing: str | None) -> None:
        if thing is not None:
            self.dismiss(thing)
        else:
            self.action_editor()

    def action_editor(self) -> None:
        """Write the highlighted role, or one with the name that is typed, and take it."""
        name = self.highlighted or self.words.value.strip()
        if not is_name(name) or name == NO_ROLE:
            self.notify(f"“{name}” cannot be the name of a role.")
            return
        file = self._directory / f"{name}.toml"
        try:
            before = file.read_text("utf-8", "replace") if file.is_file() else TEMPLATE
            written = in_editor(self.app, before, file.name)
            if written is None:
                return
            if written == before.rstrip("\n") and not file.is_file():
                self.notify(f"Nothing was written, so there is no role {name}.")
                return
            write_atomically(file, f"{written}\n".encode())
        except OSError as error:
            self.notify(f"{file} cannot be written: {error.strerror or error}.")
        else:
            self.dismiss(name)
