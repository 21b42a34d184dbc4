"""How the chat screen takes what is written in its prompt: a question, or a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual import on, work
from textual.app import SuspendNotSupported

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.writing.context import ContextUse, context_use
from eaglechat.chat.writing.editor import EditorError, edited, editor_command
from eaglechat.chat.writing.files import (
    AttachError,
    Listed,
    TypedPath,
    as_typed,
    fitting,
    list_directory,
    read_part,
    typed_path,
)
from eaglechat.chat.writing.roles import NO_ROLE, TEMPLATE, find_role, is_name, load_roles
from eaglechat.hub.local.pair import Pair, pair_of_server
from eaglechat.hub.units import format_bytes
from eaglechat.paths import write_atomically
from eaglechat.settings import Problem
from eaglechat.tui.commands import slash
from eaglechat.tui.commands.command import Command
from eaglechat.tui.commands.registry import key_of
from eaglechat.tui.navigation import LoadInstead, OpenLibrary, OpenRoles, Say
from eaglechat.tui.screens.chat.branching import Branching
from eaglechat.tui.texts import context, wording
from eaglechat.tui.widgets.prompt.prompt import Prompt

MOST_OFFERED = 60


class Writing(Branching):
    """Sends questions, runs commands, and completes both."""

    def __init__(self, *args: Any, **names: Any) -> None:
        super().__init__(*args, **names)
        self._listed: dict[str, tuple[Listed, ...]] = {}
        """Directories that were read for the path that is being typed."""
        self._warned = ""
        """The question about which it was said that the context would be full."""
        self._reading: set[str] = set()
        """Files that will be in the question."""

    @on(Prompt.Sent)
    def _prompt_sent(self, event: Prompt.Sent) -> None:
        text = slash.literal(event.text) if self.editing is None else event.text
        if text is None:
            self._run_typed(event.text)
        elif self._reading:
            self.notify(f"{', '.join(self._reading)}: still being read.", markup=False)
        elif not text.strip():
            self.notify(wording.write_first())
        elif self._is_too_much(text):
            return
        elif self.editing is not None:
            if self.session.edit(self.editing.question, self.prompt.marks.parts(text)):
                self.prompt.take()
                self.end_edit()
        elif self.session.ask(self.prompt.marks.parts(text)):
            self.prompt.take()
            self.transcript.selected = None

    def _is_too_much(self, text: str) -> bool:
        """Whether to ask first: the context would be full. The same once more is sent."""
        warning = context.warning(self._context_use(text))
        if not warning or self._warned == text or self.session.running is not None:
            return False
        self._warned = text
        send = key_of("prompt.send")
        self.notify(f"{warning} {send} again sends it.", severity="warning", markup=False)
        return True

    def action_context(self) -> None:
        """Show what the context holds, and what leaves it next."""
        self.go(Say("Context", context.in_words(self._context_use(self.prompt.text))))

    def _context_use(self, text: str) -> ContextUse:
        edited = self.editing.question if self.editing is not None else None
        return context_use(self.session, self.prompt.marks.parts(text), edited)

    def _run_typed(self, text: str) -> None:
        """Do what a command with a slash says."""
        try:
            call = slash.parse(text)
        except slash.SlashError as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        self.prompt.take()
        namespace = self.app if "app" in call.command.scopes else self
        self.app.call_next(self.app.run_action, call.command.call(call.value), namespace)

    def completed(self, before: str, is_first: bool) -> slash.Offer | None:
        """What the text before the cursor can become."""
        if (path := typed_path(before)) is not None:
            return self._files(path)
        self._listed.clear()
        is_command = is_first and self.editing is None
        return slash.offer(before, self._names) if is_command else None

    def _names(self, command: Command) -> Sequence[tuple[str, str]]:
        """What the value of a command may be by name."""
        if command.id in {"chat.role", "chat.write_role"}:
            return [(role.name, role.description) for role in load_roles(self.roles_dir)[0]]
        if command.id == "chat.model":
            return [(pair.name, pair.source) for pair in self._models()]
        return ()

    # Files

    def _files(self, typed: TypedPath) -> slash.Offer | None:
        """Those that a path can become; None until its directory is read."""
        if typed.directory not in self._listed:
            self._listed[typed.directory] = ()
            self._list(typed.directory)
        found = fitting(self._listed[typed.directory], typed.name)
        ways = tuple(_way(typed.directory, one) for one in found[:MOST_OFFERED])
        return slash.Offer(typed.start, ways) if ways else None

    @work(thread=True)
    def _list(self, directory: str) -> None:
        listed = list_directory(directory, Path())
        self.call_later(self._show_listed, directory, listed)

    def _show_listed(self, directory: str, listed: tuple[Listed, ...]) -> None:
        if directory in self._listed:
            self._listed[directory] = listed
            self.prompt.complete()

    @on(Prompt.Attach)
    def _read_chosen(self, event: Prompt.Attach) -> None:
        self._reading.add(event.path)
        self._read(event.path, event.name, self.session.n_ctx)

    @work(thread=True)
    def _read(self, path: str, name: str, n_ctx: int) -> None:
        part: TurnPart | None = None
        problem = ""
        try:
            part = read_part(path, Path(), n_ctx)
        except AttachError as error:
            problem = str(error)
        self.call_later(self._attached, path, name, part, problem)

    def _attached(self, path: str, name: str, part: TurnPart | None, problem: str) -> None:
        self._reading.discard(path)
        if part is None:
            self.notify(problem, severity="warning", markup=False)
        else:
            self.prompt.put_in_place_of(name, part)

    # The user's editor

    def action_editor(self) -> None:
        """Give the terminal to the user's editor with the draft, until it ends."""
        text = self._in_editor(self.prompt.text)
        if text is not None:
            self.prompt.replace_all(text)
            self.prompt.take_focus()

    def _in_editor(self, text: str) -> str | None:
        """The text as the user's editor leaves it; None where there was none, which is said."""
        self.session.save(self.draft)
        written, problem = None, ""
        try:
            command = editor_command()
            with self.app.suspend():
                # Textual takes the terminal back only where nothing is raised in here.
                try:
                    written = edited(command, text)
                except EditorError as error:
                    problem = str(error)
        except EditorError as error:
            problem = str(error)
        except SuspendNotSupported:
            problem = "There is no terminal here for an editor."
        if problem:
            self.notify(problem, severity="warning", markup=False)
        return written

    # Roles

    @property
    def roles_dir(self) -> Path:
        return self.services.settings.file.parent / "roles"

    def action_role(self, name: str | None) -> None:
        """Ask in another role; without a name it is chosen from a list."""
        if name is None:
            self.go(OpenRoles(self.roles_dir, self._take_role))
        else:
            self._take_role(name)

    def _take_role(self, name: str) -> None:
        role = None if name == NO_ROLE else find_role(self.roles_dir, name)
        if isinstance(role, Problem):
            self.notify(str(role), severity="warning", markup=False)
        elif role is None and name != NO_ROLE:
            self.notify(f"There is no role “{name}” in {self.roles_dir}.", markup=False)
        else:
            self.session.choose_role(role)

    def action_write_role(self, name: str | None) -> None:
        """Write a role in the user's editor, and take it."""
        name = name or (self.session.role.name if self.session.role else "")
        if not is_name(name):
            self.notify(f"Type {slash.SLASH}write_role and a valid file name.", markup=False)
            return
        file = self.roles_dir / f"{name}.toml"
        try:
            before = file.read_text("utf-8", "replace") if file.is_file() else TEMPLATE
            written = self._in_editor(before)
            if written is None:
                return
            if written == before.rstrip("\n") and not file.is_file():
                self.notify(f"Nothing was written, so there is no role {name}.", markup=False)
                return
            write_atomically(file, f"{written}\n".encode())
        except OSError as error:
            self.notify(f"{file} cannot be written: {error.strerror or error}.", markup=False)
        else:
            self._take_role(name)

    # Other models

    def action_model(self, name: str | None) -> None:
        """Chat with other models; without a name they are chosen from the library."""
        if name is None:
            self.go(OpenLibrary())
            return
        models = self._models()
        if chosen := next((pair for pair in models if pair.name == name), None):
            self.go(LoadInstead(chosen))
        else:
            known = ", ".join(pair.name for pair in models)
            self.notify(f"There is no pair “{name}”. There are: {known}.", markup=False)

    def _models(self) -> list[Pair]:
        """Those that a name is enough for."""
        servers = self.services.settings.current.server
        return [*self.services.pairs.pairs(), *map(pair_of_server, servers)]


def _way(directory: str, listed: Listed) -> slash.Completion:
    path = directory + listed.name
    if listed.size is None:
        return slash.Completion(f"{listed.name}/", "", as_typed(f"{path}/"))
    size = format_bytes(listed.size)
    return slash.Completion(listed.name, size, as_typed(path), path=path)
