"""The record of a command: its name, a sentence about it, where it holds, its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal[
    "app", "menu", "list", "downloads", "library", "dialog", "ask",
    "chat", "prompt", "compare", "seen", "inside", "chats", "find",
    "roles",
]  # fmt: skip
"""Screens and widgets with commands. Each makes its BINDINGS from one or more scopes."""

PLACES: tuple[frozenset[Scope], ...] = (
    frozenset({"app", "menu", "list"}),
    frozenset({"app", "dialog", "list", "library"}),
    frozenset({"app", "dialog", "list", "roles"}),
    frozenset({"app", "dialog", "downloads"}),
    frozenset({"app", "dialog", "ask"}),
    frozenset({"app", "dialog", "prompt"}),
    frozenset({"app", "chat", "prompt"}),
    frozenset({"app", "compare"}),
    frozenset({"app", "dialog", "seen"}),
    frozenset({"app", "dialog", "inside"}),
    frozenset({"app", "dialog", "list", "chats"}),
    frozenset({"app", "find"}),
    frozenset({"app", "chat", "list"}),
)
"""Scopes that hold at the same time. Within each of these, a key has one meaning."""

Group = Literal["Models", "Reply", "Turn", "View", "Speed", "Chat", "App"]
"""The columns of the list behind the leader's key, in their order."""

LEADER = "leader"
"""`leader v` is the key v after the key of `app.leader`."""


@dataclass(frozen=True)
class Argument:
    """The value a command takes: a number of `kind` from `least` to `most`, one of `words`, or any
    text if `text` is set."""

    kind: type[int] | type[float] | None = None
    least: float = 0.0
    most: float = 0.0
    words: tuple[str, ...] = ()
    text: str = ""
    """What the text is, such as “the name of a role”."""
    is_optional: bool = False
    """The command can be run without it, as by its keys."""

    @property
    def accepted_values(self) -> str:
        """In words: `0 to 16, or auto`."""
        if self.kind is None:
            return self.text or " or ".join(
                filter(None, (", ".join(self.words[:-1]), self.words[-1]))
            )
        return ", or ".join((f"{self.least:g} to {self.most:g}", *self.words))

    def parse(self, text: str) -> int | float | str:
        """The value of a typed text. Raises ValueError, which says what it can be."""
        if self.text:
            return text
        if text.casefold() in self.words:
            return text.casefold()
        if self.kind is None:
            raise ValueError(f"“{text}” must be {self.accepted_values}")
        try:
            value = self.kind(text)
        except ValueError:
            raise ValueError(f"“{text}” must be {self.accepted_values}") from None
        if not self.least <= value <= self.most:
            raise ValueError(f"{text} must be {self.accepted_values}")
        return value


@dataclass(frozen=True, kw_only=True)
class Command:
    """Something the user can run by a key, from the search, or by typing a slash and its name.

    The id is `thing.verb`. Commands with the same verb do the same on different screens, and have
    the same keys.
    """

    id: str
    title: str
    help: str
    scopes: tuple[Scope, ...]
    keys: tuple[str, ...] = ()
    """These work in every terminal and on every keyboard. Sentences name the first."""
    aliases: tuple[str, ...] = ()
    """Function keys and the like, which some terminals and laptops use themselves."""
    action: str = ""
    """The Textual action of the screen or widget, with {} for the value; empty: the id's verb."""
    turn_key: str = ""
    """One more key, which holds while a turn is selected and the transcript has the focus."""
    group: Group | None = None
    """Its column behind the leader's key; None if no key of its begins with the leader."""
    words: tuple[str, ...] = ()
    """What else one would call it; searches find it by these, and it can be typed by them."""
    footer: str = ""
    """Its label in the bottom line; empty: it is not shown there."""
    argument: Argument | None = None
    slash: str | None = ""
    """What is typed after a slash in the prompt; empty: the id's verb, None: it cannot be typed."""

    @property
    def verb(self) -> str:
        return self.id.partition(".")[2]

    @property
    def all_keys(self) -> tuple[str, ...]:
        return (*self.keys, *self.aliases)

    def call(self, value: int | float | str | None = None) -> str:
        """The Textual action to run, with the value if the command takes one."""
        return (self.action or self.verb).replace("{}", repr(value))

    @property
    def slash_name(self) -> str | None:
        """What is typed after a slash; None if the command cannot be typed in a chat."""
        if self.slash is None or {"app", "chat"}.isdisjoint(self.scopes):
            return None
        return self.slash or self.verb
