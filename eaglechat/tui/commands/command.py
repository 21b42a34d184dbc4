"""What a command is: a name, a sentence about it, where it holds, and its keys as shipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal[
    "app", "menu", "list", "open", "downloads", "library", "dialog", "confirm",
    "chat", "prompt", "slider", "bench", "seen", "inside", "chats", "find",
]  # fmt: skip
"""Screens and widgets that have commands of their own: each makes its BINDINGS from one or more."""

PLACES: tuple[frozenset[Scope], ...] = (
    frozenset({"app", "menu", "list"}),
    frozenset({"app", "dialog", "list", "library"}),
    frozenset({"app", "dialog", "open"}),
    frozenset({"app", "dialog", "downloads"}),
    frozenset({"app", "dialog", "confirm"}),
    frozenset({"app", "dialog", "prompt"}),
    frozenset({"app", "chat", "prompt", "slider"}),
    frozenset({"app", "bench"}),
    frozenset({"app", "dialog", "seen"}),
    frozenset({"app", "dialog", "inside"}),
    frozenset({"app", "dialog", "list", "chats"}),
    frozenset({"app", "find"}),
)
"""What holds at the same time: a key has one meaning within each."""

LEADER = "leader"
"""`leader v` is the key v after the key of `app.leader`."""


@dataclass(frozen=True)
class Argument:
    """The value a command takes: a number in a range, or one of some words. Without a kind only
    words will do, or any text where `text` says what it is."""

    kind: type[int] | type[float] | None = None
    least: float = 0.0
    most: float = 0.0
    words: tuple[str, ...] = ()
    text: str = ""
    """What a text stands for, as “the name of a role”."""
    is_optional: bool = False
    """The command does something without it too, as its keys do."""

    @property
    def span(self) -> str:
        """What it may be: `0 to 16, or auto`."""
        if self.kind is None:
            return self.text or " or ".join(
                filter(None, (", ".join(self.words[:-1]), self.words[-1]))
            )
        return ", or ".join((f"{self.least:g} to {self.most:g}", *self.words))

    def parse(self, text: str) -> int | float | str:
        """The value that is typed. Raises ValueError with what it may be."""
        if self.text:
            return text
        if text.casefold() in self.words:
            return text.casefold()
        if self.kind is None:
            raise ValueError(f"“{text}” must be {self.span}")
        try:
            value = self.kind(text)
        except ValueError:
            raise ValueError(f"“{text}” must be {self.span}") from None
        if not self.least <= value <= self.most:
            raise ValueError(f"{text} must be {self.span}")
        return value


@dataclass(frozen=True, kw_only=True)
class Command:
    """Something the user can have done, by a key, from the palette, or with a button.

    The part of the id before the dot is the thing, the part behind it what is done: commands that
    end alike do the same on different screens, and have the same keys.
    """

    id: str
    title: str
    help: str
    scopes: tuple[Scope, ...]
    keys: tuple[str, ...] = ()
    """Each works in every terminal and on every keyboard; the first is the one that is named."""
    aliases: tuple[str, ...] = ()
    """Function keys and such: some terminals and laptops keep them to themselves."""
    action: str = ""
    """What the screen or widget does, as Textual writes it, with {} for the value; the verb of the
    id if empty."""
    priority: bool = False
    """Before the widget with the focus sees the key."""
    footer: str = ""
    """Its word in the bottom line; empty keeps it out."""
    argument: Argument | None = None
    slash: str | None = ""
    """What is typed behind a slash in the prompt; the verb of the id if empty, None for nothing."""

    @property
    def verb(self) -> str:
        return self.id.partition(".")[2]

    @property
    def all_keys(self) -> tuple[str, ...]:
        return (*self.keys, *self.aliases)

    def call(self, value: int | float | str | None = None) -> str:
        """The action to run, with the value if the command takes one."""
        return (self.action or self.verb).replace("{}", repr(value))

    @property
    def slash_name(self) -> str | None:
        """Its name behind a slash, where it can be typed in a chat."""
        if self.slash is None or {"app", "chat"}.isdisjoint(self.scopes):
            return None
        return self.slash or self.verb
