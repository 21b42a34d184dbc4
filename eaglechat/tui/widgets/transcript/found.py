"""What stands in replies and is walked through from the last to the first: code blocks, links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from eaglechat.tui.texts import wording
from eaglechat.tui.texts.timeline import Entry
from eaglechat.tui.widgets.transcript.reading import Code
from eaglechat.wire.neutral import neutralise

Found = TypeVar("Found")


class Backwards(Generic[Found]):
    """Walks through what replies have: the last first, and from there back. A chat that has become
    another is walked through anew."""

    def __init__(self) -> None:
        self._entries: Sequence[Entry] = ()
        self._rest: list[Found] = []
        self._place = 0

    def step(
        self, entries: Sequence[Entry], find: Callable[[str], Sequence[Found]]
    ) -> Found | None:
        """The next one; None behind the first, after which the last comes again."""
        if entries is not self._entries:
            self._entries, self._place, self._rest = entries, len(entries), []
        while not self._rest and self._place:
            self._place -= 1
            entry = entries[self._place]
            if entry.kind == "reply" and entry.recording is not None:
                self._rest = [*find(neutralise(entry.recording.text))]
        if self._rest:
            return self._rest.pop()
        self._entries = ()
        return None


def said_of(code: Code) -> str:
    """Which code block it is."""
    count = wording.plural(len(code.text.splitlines()), "line")
    first = next((line.strip() for line in code.text.splitlines() if line.strip()), "")
    language = f"{code.language}, " if code.language else ""
    return f"{language}{count} of code, “{wording.fitting(first, 40)}”"
