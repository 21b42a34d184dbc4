"""BINDINGS of screens and widgets, and other keys in the place of those shipped."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from eaglechat.tui.commands.command import Command, Scope
from eaglechat.tui.commands.registry import BY_ID, Keymap, commands_of


def bindings_of(*scopes: Scope) -> list[BindingType]:
    """BINDINGS for a screen or widget, with the keys as shipped."""
    return [_binding(command) for command in commands_of(*scopes) if command.all_keys]


def textual_keymap(keymap: Keymap) -> dict[str, str]:
    """What `App.set_keymap` takes to put other keys in force."""
    return {id: ",".join(keys) for id, keys in keymap.items()}


def command_of(binding: Binding) -> Command | None:
    """The command behind a binding, if it is one of ours."""
    return BY_ID.get(binding.id or "")


def _binding(command: Command) -> Binding:
    return Binding(
        ",".join(command.all_keys),
        command.call(),
        command.footer or command.title,
        show=bool(command.footer),
        priority=command.priority,
        tooltip=command.help,
        id=command.id,
    )
