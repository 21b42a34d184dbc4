"""What servers answer: JSON, and the events of a streamed answer, server-sent events as the WHATWG
defines them, and what servers make of them.

Each server has fields, and types of fields, of its own, and none of them is worth a reply: a value
is asked for by its path, and is empty if nothing of its type stands there.
"""

from __future__ import annotations

import codecs
import io
import json
import math
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx2

_MOST = 2**53
"""More than any count. Counts are cut to 0 ... _MOST: a server's numbers may be anything."""
_LONGEST = 1 << 24
"""Characters of the longest event."""


def read_json(text: str | bytes) -> Any:
    """The JSON in a text. Half a surrogate pair stays one: servers that are written in JavaScript
    cut characters in two. Raises ValueError."""
    try:
        # Not msgspec, which refuses such halves.
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def at(value: Any, *path: str) -> Any:
    """What stands at this path of names; None if nothing does."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def fields(value: Any, *path: str) -> dict[str, Any]:
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def text(value: Any, *path: str) -> str:
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: Any, *path: str) -> float:
    """The finite number there, which may be written as a text."""
    found = at(value, *path)
    try:
        known = 0.0 if isinstance(found, bool) else float(found)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return known if math.isfinite(known) else 0.0


def count(value: Any, *path: str) -> int:
    """The count there: a number without a fraction."""
    known = number(value, *path)
    return min(max(int(known), 0), _MOST) if known.is_integer() else 0


@dataclass(frozen=True)
class Event:
    data: str
    name: str
    is_bare: bool
    """Whether it came without `data:`, as the body of an answer that is no stream does."""

    @property
    def is_end(self) -> bool:
        return self.data.strip(' \t[]"').upper() == "DONE"

    @cached_property
    def value(self) -> dict[str, Any] | None:
        """The JSON object that `data` is; None if it is none."""
        with suppress(ValueError):
            value = read_json(self.data)
            return value if isinstance(value, dict) else None
        return None


async def events_in(pieces: AsyncIterable[bytes]) -> AsyncIterator[Event]:
    """The events in the pieces of an answer. Raises ValueError for one without
    events, and what `pieces` raises."""
    decoder, failure = _Decoder(), None
    try:
        async for piece in pieces:
            for event in decoder.push(piece):
                yield event
    except httpx2.TransportError as error:
        failure = error
    for event in decoder.end():
        yield event
    if failure is not None:
        raise failure


class _Decoder:
    """Beyond what the standard says, a line that is a whole object is an event, also without
    `data:` or a blank line behind it; and so is the rest, if it is one."""

    def __init__(self) -> None:
        # Events are UTF-8, whatever a proxy or the server says of them.
        utf_8 = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._text = io.IncrementalNewlineDecoder(utf_8, translate=True)
        self._rest: list[str] = []
        """The pieces of a line that is not complete."""
        self._data: list[str] = []
        """The lines so far of an event."""
        self._name, self._is_bare = "", False
        self._n_waiting = 0
        """Characters that belong to no event yet."""
        self._has_events = False
        self._odd = ""
        """The first line that belongs to no event."""

    def push(self, piece: bytes, *, is_last: bool = False) -> Iterator[Event]:
        text = self._text.decode(piece, is_last)
        self._n_waiting += len(text)
        first, *lines = text.split("\n")
        self._rest.append(first)
        for line in lines:
            yield from self._take("".join(self._rest))
            self._rest = [line]
        if self._n_waiting > _LONGEST:
            raise ValueError(f"an event of more than {_LONGEST >> 20} MiB")

    def end(self) -> Iterator[Event]:
        yield from self.push(b"", is_last=True)
        if line := "".join(self._rest):
            yield from self._take(line)
        # What breaks off is no event, unless it is an error.
        yield from self._dispatch(only_whole=self._name != "error")
        if self._odd and not self._has_events:
            raise ValueError(f"no events, but “{self._odd}”")

    def _take(self, line: str) -> Iterator[Event]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if self._is_bare or (not self._data and line.lstrip().startswith("{")):
            self._is_bare = True
            self._data.append(line)
            if len(self._data) == 1:
                yield from self._dispatch(only_whole=True)
        elif name == "data":
            if len(self._data) == 1:
                yield from self._dispatch(only_whole=True)
            self._data.append(value)
        elif not line:
            yield from self._dispatch()
        elif name == "event":
            self._name = value
        elif name not in ("", "id", "retry"):
            self._odd = self._odd or line.strip()

    def _dispatch(self, *, only_whole: bool = False) -> Iterator[Event]:
        event = Event("\n".join(self._data), self._name, self._is_bare)
        if only_whole and not event.is_end and event.value is None:
            return
        self._data, self._name, self._is_bare, self._n_waiting = [], "", False, 0
        if event.data:
            self._has_events = True
            yield event
