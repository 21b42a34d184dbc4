"""Commands typed in the prompt of a chat, such as `/new` or `/temp 0.8`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from eaglechat.tui.commands.table import Argument, Command, commands_of

SLASH = "/"

_NAMED = {command.slash_name: command for command in commands_of("app", "chat")}
BY_SLASH: Mapping[str, Command] = {name: _NAMED[name] for name in sorted(filter(None, _NAMED))}
"""The commands that can be typed in a chat by name, sorted."""

Choices = Callable[[Command], Sequence[tuple[str, str]]]
"""Gives the names a command's text can be, each with a few words about it."""


class SlashError(ValueError):
    """What is typed is no command, or its value is wrong. The text is a sentence for the user."""


@dataclass(frozen=True)
class Call:
    """A typed command with its value."""

    command: Command
    value: int | float | str | None = None


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


def parse(text: str) -> Call:
    """The command in a text that begins with a slash. Unambiguous names may be shortened.

    Raises SlashError.
    """
    name, _, rest = text.removeprefix(SLASH).replace("\n", " \n", 1).partition(" ")
    name, value = name.strip(), rest.strip()
    command = _find(name)
    argument = command.argument
    if not value:
        if argument is None or argument.is_optional:
            return Call(command)
        raise SlashError(f"{SLASH}{command.slash_name} takes {argument.accepted_values}.")
    if argument is None:
        raise SlashError(f"{SLASH}{command.slash_name} takes no value.")
    try:
        return Call(command, argument.parse(value))
    except ValueError as error:
        raise SlashError(f"{SLASH}{command.slash_name}: {error}.") from None


def completions_of(before: str, choices: Choices) -> CompletionList | None:
    """The completions of the first line, given its text before the cursor."""
    if not before.startswith(SLASH) or before.startswith(SLASH * 2):
        return None
    name, space, typed = before[1:].partition(" ")
    if not space:
        named = tuple(_named(name))
        return CompletionList(0, named) if named else None
    try:
        command = _find(name)
    except SlashError:
        return None
    if command.argument is None:
        return None
    typed = typed.lstrip()
    start = len(before) - len(typed)
    return CompletionList(start, tuple(_values(command, command.argument, typed, choices(command))))


def _find(name: str) -> Command:
    """The command of this name; or the only one which is also called so, or whose name begins like
    this. Raises SlashError."""
    by_name = {**{command.verb: command for command in BY_SLASH.values()}, **BY_SLASH}
    if name in by_name:
        return by_name[name]
    called = {one.id: one for one in BY_SLASH.values() if name in one.words}
    near = {one.id: one for key, one in by_name.items() if name and key.startswith(name)}
    for found in (called, near):
        if len(found) == 1:
            return next(iter(found.values()))
    if not name:
        raise SlashError(f"Type a command after the slash, such as {SLASH}help.")
    meant = sorted(str(one.slash_name) for one in {**called, **near}.values())[:3]
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
        command = BY_SLASH[one]
        argument = command.argument
        shown = f"{SLASH}{one}"
        if argument is not None:
            shown += f" [{_short(argument)}]" if argument.is_optional else f" {_short(argument)}"
        yield Completion(
            shown,
            command.help,
            f"{SLASH}{one}" + (" " if argument is not None else ""),
            argument is None or argument.is_optional,
        )


def _values(
    command: Command, argument: Argument, typed: str, choices: Sequence[tuple[str, str]]
) -> Iterator[Completion]:
    words = choices if argument.text else [(word, "") for word in argument.words]
    fitting = [(word, about) for word, about in words if typed.casefold() in word.casefold()]
    if argument.kind is not None or not fitting:
        yield Completion(argument.accepted_values, command.help)
    for word, about in fitting:
        yield Completion(word, about or command.help, word, True)


def _short(argument: Argument) -> str:
    """What an argument can be, in a word or two."""
    if argument.kind is not None:
        return f"{argument.least:g}-{argument.most:g}"
    return argument.text.split()[-1].upper() if argument.text else "|".join(argument.words)
