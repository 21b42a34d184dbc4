"""The events of a stream, wherever the network cuts it into pieces."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.links.http.answers import Event
from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.faults import ServerError
from eaglechat.settings.model import ServerSettings

ENDS = ("\n", "\r\n", "\r")
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, data: bytes, cuts: list[int]) -> None:
        places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        self._pieces = [data[a:b] for a, b in itertools.pairwise(places)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def heard(data: bytes, cuts: list[int]) -> tuple[list[Event], str]:
    """The events of a stream that comes in these pieces, and the code of the error that ends it."""

    def answer(_request: httpx2.Request) -> httpx2.Response:
        kind = {"Content-Type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, stream=Pieces(data, cuts))

    client = ServerClient(ServerSettings(name="box", url="http://box"))
    client._opened = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    async def read() -> tuple[list[Event], str]:
        events: list[Event] = []
        try:
            async with client.stream("http://box/v1/chat/completions", {}) as stream:
                async for event in stream:
                    events.append(event)
        except ServerError as error:
            return events, error.code
        return events, ""

    try:
        return client.loop.run_until_complete(read())
    finally:
        client.close()


@given(
    st.lists(texts, max_size=5),
    st.sampled_from(ENDS),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.booleans(),
)
def test_the_events_are_the_same_wherever_the_stream_is_cut(
    said: list[str], end: str, cuts: list[int], is_whole: bool
) -> None:
    sent = [{"text": text} for text in said]
    data = [msgspec.json.encode(one).decode() for one in sent]
    lines = [f": ping{end}", *(f"data: {one}{end}{end}" for one in data)]
    if is_whole:
        lines.append(f"data: [DONE]{end}{end}")
    events, code = heard("".join(lines).encode(), cuts)
    assert [event.value for event in events] == sent
    assert code == ("" if is_whole else "cut")


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_anything_else_is_events_or_an_error_of_ours(data: bytes, cuts: list[int]) -> None:
    events, code = heard(data, cuts)
    assert code in ("", "cut", "protocol")
    assert all(event.data for event in events)


@pytest.mark.parametrize("line", ["data: 1\n", "data: {\n", "{\n", "}\n", ": x\n", "x\n", "\r"])
def test_lines_without_an_end_are_read_once(line: str) -> None:
    # Not once more for each line that follows: that takes hours.
    assert heard(line.encode() * 200_000, [])[0] == []
