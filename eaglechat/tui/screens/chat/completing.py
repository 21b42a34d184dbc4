"""What the text before the cursor of the prompt can become: a command, its value, or a file."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.chat.writing.files import Listed, TypedPath, as_typed, fitting, typed_path
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands import slash

MOST_FILES_OFFERED = 60


class PromptCompleter:
    """`choices` are the names that the value of a command can be. `read` reads a directory in a
    thread and gives it to `take_listed`."""

    def __init__(self, choices: slash.Choices, read: Callable[[str], object]) -> None:
        self._choices, self._read = choices, read
        self._listed: dict[str, tuple[Listed, ...]] = {}
        """The directories of the path that is being typed; empty until they are read."""

    def offer(self, before: str, is_command: bool) -> slash.Offer | None:
        """What the text before the cursor on its line can become, if anything; `is_command` says
        whether a command could begin this line."""
        if (path := typed_path(before)) is not None:
            return self._files(path)
        self._listed.clear()
        return slash.offer(before, self._choices) if is_command else None

    def take_listed(self, directory: str, listed: tuple[Listed, ...]) -> bool:
        """What was read; False if another path is typed by now."""
        if directory not in self._listed:
            return False
        self._listed[directory] = listed
        return True

    def _files(self, typed: TypedPath) -> slash.Offer | None:
        if typed.directory not in self._listed:
            self._listed[typed.directory] = ()
            self._read(typed.directory)
        found = fitting(self._listed[typed.directory], typed.name)[:MOST_FILES_OFFERED]
        ways = tuple(_completion(typed.directory, one) for one in found)
        return slash.Offer(typed.start, ways) if ways else None


def _completion(directory: str, listed: Listed) -> slash.Completion:
    path = directory + listed.name
    if listed.size is None:
        return slash.Completion(f"{listed.name}/", "", as_typed(f"{path}/"))
    return slash.Completion(listed.name, format_bytes(listed.size), as_typed(path), path=path)
