"""The events of a streamed answer: server-sent events as the WHATWG defines them, and what servers
make of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx2

from eaglechat.links.http.answers import read_json
from eaglechat.wire.errors import EngineError

_LONGEST = 1 << 24
"""Characters of the longest event."""
_LINE_END = re.compile("\r\n|\r|\n")


class NoEventsError(EngineError):
    """An answer is no stream of events; the message says what it is."""

    code = "protocol"


@dataclass(frozen=True)
class Event:
    data: str
    name: str = ""
    is_bare: bool = False
    """Whether it came without `data:`, as the body of an answer that is no stream does."""

    @property
    def is_end(self) -> bool:
        """Whether it says that no more come."""
        return _is_end(self.data)


async def events_in(pieces: AsyncIterable[str]) -> AsyncIterator[Event]:
    """The events in the pieces of a text. Raises NoEventsError, and what `pieces` raises."""
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
    """Beyond what the standard says, the last event needs no blank line behind it, nor does a line
    of `data:` that is whole; and JSON without `data:` is an event if it is a line, or the rest."""

    def __init__(self) -> None:
        self._rest: list[str] = []
        """The pieces of a line that is not complete."""
        self._ends_in_cr = False
        self._is_first = True
        self._data: list[str] = []
        self._name = ""
        self._bare: list[str] = []
        """The lines so far of JSON without `data:`."""
        self._n_waiting = 0
        """Characters that belong to no event yet."""
        self._n_events = 0
        self._odd = ""
        """The first line that belongs to no event."""

    def push(self, text: str) -> Iterator[Event]:
        if self._is_first and text:
            text, self._is_first = text.removeprefix("\ufeff"), False
        if self._ends_in_cr and text:
            text = text.removeprefix("\n")
            self._ends_in_cr = False
        if not text:
            return
        self._ends_in_cr = text.endswith("\r")
        self._n_waiting += len(text)
        first, *lines = _LINE_END.split(text)
        self._rest.append(first)
        for line in lines:
            yield from self._take("".join(self._rest))
            self._rest = [line]
        if self._n_waiting > _LONGEST:
            raise NoEventsError(f"an event of more than {_LONGEST >> 20} MiB")

    def end(self) -> Iterator[Event]:
        if line := "".join(self._rest):
            yield from self._take(line)
        # What breaks off is no event.
        if _is_whole("\n".join(self._bare)):
            yield from self._dispatch_bare()
        if self._name or _is_whole("\n".join(self._data)):
            yield from self._dispatch()
        if self._odd and not self._n_events:
            raise NoEventsError(f"no events, but “{self._odd}”")

    def _take(self, line: str) -> Iterator[Event]:
        if self._bare or (not self._data and line.lstrip().startswith("{")):
            self._bare.append(line)
            if len(self._bare) == 1 and _is_whole(line):
                yield from self._dispatch_bare()
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            yield from self._dispatch()
        elif name == "data":
            if len(self._data) == 1 and _is_whole(self._data[0]):
                yield from self._dispatch()
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name not in ("", "id", "retry"):
            self._odd = self._odd or line.strip()

    def _dispatch_bare(self) -> Iterator[Event]:
        self._data, self._bare = self._bare, []
        return self._dispatch(is_bare=True)

    def _dispatch(self, *, is_bare: bool = False) -> Iterator[Event]:
        data, name = "\n".join(self._data), self._name
        self._data, self._name, self._n_waiting = [], "", 0
        if data:
            self._n_events += 1
            yield Event(data, name, is_bare)


def _is_whole(data: str) -> bool:
    """Whether this is the data of an event, and not only its beginning."""
    with suppress(ValueError):
        return _is_end(data) or isinstance(read_json(data), dict)
    return False


def _is_end(data: str) -> bool:
    return data.strip(' \t[]"').upper() == "DONE"
