"""What the text before the cursor in the prompt can become: a command, its value, or a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eaglechat.chat.writing.files import (
    MOST_BYTES,
    Listed,
    as_typed,
    fitting,
    list_directory,
    typed_path,
)
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands import slash
from eaglechat.tui.screens.base import EagleScreen
from eaglechat.tui.widgets.prompt.prompt import Prompt

MOST_FILES_OFFERED = 60


class Completer:
    """Completes what is typed in the prompt of a screen."""

    def __init__(
        self,
        screen: EagleScreen[None],
        may_be_command: Callable[[], bool],
        choices: slash.Choices,
    ) -> None:
        self._screen, self._may_be_command, self._choices = screen, may_be_command, choices
        self._listed: dict[str, tuple[Listed, ...]] = {}
        """The directories of the path that is being typed; empty until they are read."""

    def __call__(self, before: str, is_first: bool) -> slash.CompletionList | None:
        """`before` is the text before the cursor on its line, which is the first one or not."""
        typed = typed_path(before)
        if typed is None:
            self._listed.clear()
            is_command = is_first and self._may_be_command()
            return slash.completions_of(before, self._choices) if is_command else None
        start, directory, name = typed
        if directory not in self._listed:
            self._listed[directory] = ()
            self._screen.in_background(
                partial(list_directory, directory), partial(self._take, directory)
            )
        found = fitting(self._listed[directory], name)[:MOST_FILES_OFFERED]
        files = tuple(_completion(directory, one) for one in found)
        return slash.CompletionList(start, files) if files else None

    def _take(self, directory: str, listed: tuple[Listed, ...]) -> None:
        # By now another path may be typed.
        if directory in self._listed:
            self._listed[directory] = listed
            self._screen.query_one(Prompt).complete()


def _completion(directory: str, listed: Listed) -> slash.Completion:
    path = directory + listed.name
    if listed.size is None:
        return slash.Completion(f"{listed.name}/", "", as_typed(f"{path}/"))
    size = format_bytes(listed.size) + (", too large" if listed.size > MOST_BYTES else "")
    return slash.Completion(listed.name, size, as_typed(path), path=path)
