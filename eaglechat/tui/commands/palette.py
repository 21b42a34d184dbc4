"""The command palette: commands found by name, some typed with a value."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from eaglechat.tui.commands.bindings import active_commands
from eaglechat.tui.commands.command import Argument, Command
from eaglechat.tui.commands.registry import name_of
from eaglechat.tui.commands.table import COMMANDS


class ScreenCommands(Provider):
    """Commands that need no value."""

    async def discover(self) -> Hits:
        for active in active_commands(self.screen):
            run = partial(self.app.run_action, active.command.call(), active.node)
            yield DiscoveryHit(active.command.title, run, help=_help(active.command, active.keys))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for active in active_commands(self.screen):
            title = active.command.title
            if (score := matcher.match(title)) > 0:
                run = partial(self.app.run_action, active.command.call(), active.node)
                help_ = _help(active.command, active.keys)
                yield Hit(score, matcher.highlight(title), run, help=help_)


class ChatControls(Provider):
    """Commands typed with a value, such as `n_draft_max 5` or `temperature 0.8`."""

    async def discover(self) -> Hits:
        for command in _without_key():
            run = partial(self.screen.run_action, command.call())
            yield DiscoveryHit(command.title, run, help=command.help)
        for command, argument in _with_argument():
            yield DiscoveryHit(
                command.title, partial(self._explain, command, argument), help=command.help
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in _without_key():
            if (score := matcher.match(command.title)) > 0:
                run = partial(self.screen.run_action, command.call())
                yield Hit(score, matcher.highlight(command.title), run, help=command.help)
        for command, argument in _with_argument():
            typed = _typed_behind(command.title, query)
            if typed is None:
                continue
            try:
                value = argument.parse(typed)
            except ValueError:
                takes = f"{command.title} takes {argument.span}"
                yield Hit(1.0, takes, partial(self._explain, command, argument), help=command.help)
            else:
                run = partial(self.screen.run_action, command.call(value))
                yield Hit(1.0, f"{command.title} {value}", run, help=command.help)

    def _explain(self, command: Command, argument: Argument) -> None:
        self.app.notify(f"Type {command.title} followed by {argument.span}.")


def _typed_behind(title: str, query: str) -> str | None:
    """The value after the name of a command, which may be abbreviated: `temp 0.8`. Empty if only
    the name is typed, None if it is another command's."""
    words = query.casefold().split()
    if words and title.startswith("_".join(words)):
        return ""
    return words[-1] if len(words) > 1 and title.startswith("_".join(words[:-1])) else None


def _with_argument() -> Iterator[tuple[Command, Argument]]:
    """The commands that need a value."""
    for command in COMMANDS:
        if command.argument is not None and not command.argument.is_optional:
            yield command, command.argument


def _without_key() -> Iterator[Command]:
    """The commands whose value is optional, and which have no key."""
    for command in COMMANDS:
        if command.argument is not None and command.argument.is_optional and not command.keys:
            yield command


def _help(command: Command, keys: tuple[str, ...]) -> str:
    return f"{name_of(keys[0])}  {command.help}"
