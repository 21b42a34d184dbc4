"""Commands typed in the prompt of a chat, such as `/new` or `/temp 0.8`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from eaglechat.tui.commands.table import Command, commands_of

SLASH = "/"

_NAMED = {command.slash_name: command for command in commands_of("app", "chat")}
BY_SLASH: Mapping[str, Command] = {name: _NAMED[name] for name in sorted(filter(None, _NAMED))}
"""The commands that can be typed in a chat by name, sorted."""

Choices = Callable[[Command], Sequence[tuple[str, str]]]
"""Gives the names a command's text can be, each with a few words about it."""


class SlashError(ValueError):
    """What is typed is no command, or its value is wrong. The text is a sentence for the user."""


@dataclass(frozen=True)
class Completion:
    """One completion: `text` replaces what is typed. It is empty if the row only says which value
    has to be typed."""

    shown: str
    help: str
    text: str = ""
    is_whole: bool = False
    """Nothing has to follow: it can be sent like this."""
    path: str = ""
    """The path of the file to attach, if it is one."""


@dataclass(frozen=True)
class CompletionList:
    """The completions of the text before the cursor; they replace it from column `start` on."""

    start: int
    completions: tuple[Completion, ...]


def literal(text: str) -> str | None:
    """The text that is sent to the model, in which two slashes at the start are one; None for a
    command."""
    if text.startswith(SLASH * 2):
        return text[1:]
    return None if text.startswith(SLASH) else text


def begins_command(text: str) -> bool:
    """Whether a text is a command or the beginning of one."""
    return literal(text) is None and any(_named(text[1:].partition(" ")[0]))


def escaped(text: str) -> str:
    """What to type so that this text is sent: `literal` backwards."""
    return SLASH + text if text.startswith(SLASH) else text


def parse(text: str) -> tuple[Command, int | float | str | None]:
    """The command in a text that begins with a slash, and its value. Unambiguous names may be
    shortened. Raises SlashError."""
    name, _, rest = text.removeprefix(SLASH).replace("\n", " \n", 1).partition(" ")
    command, value = _find(name.strip()), rest.strip()
    argument, shown = command.argument, f"{SLASH}{command.slash_name}"
    if argument is None:
        if value:
            raise SlashError(f"{shown} takes no value.")
    elif value:
        try:
            return command, argument.parse(value)
        except ValueError as error:
            raise SlashError(f"{shown}: {error}.") from None
    elif not argument.is_optional:
        raise SlashError(f"{shown} takes {argument.accepted_values}.")
    return command, None


def completions_of(before: str, choices: Choices) -> CompletionList | None:
    """The completions of the first line, given its text before the cursor."""
    if not before.startswith(SLASH) or before.startswith(SLASH * 2):
        return None
    name, space, typed = before[1:].partition(" ")
    start, found = 0, tuple(_named(name))
    if space:
        typed = typed.lstrip()
        start, found = len(before) - len(typed), tuple(_values(name, typed, choices))
    return CompletionList(start, found) if found else None


def _find(name: str) -> Command:
    """The command of this name; or the only one which is also called so, or whose name begins like
    this. Raises SlashError."""
    if not name:
        raise SlashError(f"Type a command after the slash, such as {SLASH}help.")
    commands = BY_SLASH.values()
    named = [one for one in commands if name in (one.slash_name, one.verb)]
    called = [one for one in commands if name in one.words]
    begun = [
        one
        for one in commands
        if any(each.startswith(name) for each in (one.slash_name or "", one.verb))
    ]
    for found in (named, called, begun):
        if len(found) == 1:
            return found[0]
    meant = sorted({str(one.slash_name) for one in (*called, *begun)})[:3]
    close = meant or get_close_matches(name, BY_SLASH, 1)
    hint = f" Did you mean {' or '.join(SLASH + one for one in close)}?" if close else ""
    raise SlashError(
        f"There is no command {SLASH}{name[:40]}.{hint} "
        f"To send it as text, begin with two slashes: {SLASH}{SLASH}"
    )


def _named(name: str) -> Iterator[Completion]:
    """The commands whose name begins with this, then those that contain it, then those that are
    also called so."""
    ways: tuple[Callable[[str, Command], bool], ...] = (
        lambda one, _: one.startswith(name),
        lambda one, _: name in one,
        lambda _, command: bool(name) and any(word.startswith(name) for word in command.words),
    )
    found = dict.fromkeys(
        one for is_meant in ways for one, command in BY_SLASH.items() if is_meant(one, command)
    )
    for one in found:
        command, shown, text = BY_SLASH[one], f"{SLASH}{one}", f"{SLASH}{one}"
        is_whole = command.argument is None or command.argument.is_optional
        if (argument := command.argument) is not None:
            value = argument.text.split()[-1].upper() if argument.text else "|".join(argument.words)
            if argument.setting is not None:
                numbers = argument.setting.range
                value = f"{numbers.minimum:g}-{numbers.maximum:g}"
            shown, text = f"{shown} {f'[{value}]' if is_whole else value}", f"{text} "
        yield Completion(shown, command.help, text, is_whole)


def _values(name: str, typed: str, choices: Choices) -> Iterator[Completion]:
    """The values that a command can take which have this in them; none if there is no command."""
    try:
        command = _find(name)
    except SlashError:
        return
    argument = command.argument
    if argument is None:
        return
    words = choices(command) if argument.text else [(word, "") for word in argument.words]
    fitting = [(word, about) for word, about in words if typed.casefold() in word.casefold()]
    if argument.setting is not None or not fitting:
        yield Completion(argument.accepted_values, command.help)
    for word, about in fitting:
        yield Completion(word, about or command.help, word, True)
