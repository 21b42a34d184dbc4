"""The events of a streamed answer: server-sent events as the WHATWG defines them, and what servers
make of them."""

from __future__ import annotations

import codecs
import io
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx2

from eaglechat.links.http.answers import read_json

_LONGEST = 1 << 24
"""Characters of the longest event."""


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
    """Beyond what the standard says, the last event needs no blank line behind it, nor does a line
    of `data:` that is whole; and JSON without `data:` is an event if it is a line, or the rest."""

    def __init__(self) -> None:
        # Events are UTF-8, whatever a proxy or the server says of them; the bytes of a character
        # that a server cut in two are kept as lone surrogates.
        utf_8 = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._text = io.IncrementalNewlineDecoder(utf_8, translate=True)
        self._rest: list[str] = []
        """The pieces of a line that is not complete."""
        self._data: list[str] = []
        self._name = ""
        self._bare: list[str] = []
        """The lines so far of JSON without `data:`."""
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
        # What breaks off is no event.
        if _is_whole("\n".join(self._bare)):
            yield from self._dispatch_bare()
        if self._name or _is_whole("\n".join(self._data)):
            yield from self._dispatch()
        if self._odd and not self._has_events:
            raise ValueError(f"no events, but “{self._odd}”")

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
            self._has_events = True
            yield Event(data, name, is_bare)


def _is_whole(data: str) -> bool:
    """Whether this is the data of an event, and not only its beginning."""
    with suppress(ValueError):
        return _is_end(data) or isinstance(read_json(data), dict)
    return False


def _is_end(data: str) -> bool:
    return data.strip(' \t[]"').upper() == "DONE"
