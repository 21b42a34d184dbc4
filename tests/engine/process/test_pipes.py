"""The server's end of the pipes: whatever comes in, each line is answered; the service goes on."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglechat.engine import process
from eaglechat.engine.process import ClientPipes
from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import ProtocolError, decode_event, decode_request, encode

CHAT = p.Chat(id=8, messages=())


class Pipe(io.BytesIO):
    """The client's end: what was written stays readable; `broken` is a client that is gone."""

    broken = False

    def write(self, line: Any) -> int:
        if self.broken:
            raise BrokenPipeError
        return super().write(line)

    @property
    def events(self) -> list[p.AnyEvent]:
        return [decode_event(line) for line in self.getvalue().splitlines()]


def serve(*lines: bytes) -> list[p.AnyEvent]:
    """What is answered to some lines, after hello."""
    pipe = Pipe()
    ClientPipes(io.BytesIO(b"".join(line + b"\n" for line in lines)), pipe).serve()
    hello, *rest = pipe.events
    assert isinstance(hello, p.Hello)
    return rest


def protocol_errors(events: list[p.AnyEvent]) -> list[int | None]:
    """The ids under which lines were refused."""
    return [e.id for e in events if isinstance(e, p.Error) and e.code == "protocol"]


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        (b'{"type": "dance", "id": 7}', 7),
        (b'{"id": 7}', 7),
        (b'{"type": "load", "id": 7}', 7),
        (b'{"type": "chat", "id": 7, "messages": [], "speculation": {"n_draft_max": 17}}', 7),
        (b'{"type": "chat", "id": 7, "messages": [{"role": "user", "content": 3}]}', 7),
        (b'{"type": "chat", "id": -1, "messages": []}', None),
        (b'{"type": "chat", "id": 9007199254740992, "messages": []}', None),
        (b'{"type": "chat", "id": 1' + b"0" * 400 + b', "messages": []}', None),
        (b'{"type": "chat", "id": "7", "messages": []}', None),
        (b'{"type": "set", "n_draft_max": 17}', None),
        (b"not json", None),
        (b'{"type": "chat", "id": 7, "messages": [{"role": "user", "content": "\xff"}]}', 7),
        (b"[" * 100_000, None),
        (b'{"type": "chat", "id": 7, "messages": ' + b"[" * 100_000, None),
    ],
)
def test_a_line_that_is_not_understood_is_answered_under_its_id(
    line: bytes, request_id: int | None
) -> None:
    refused, chat = serve(line, encode(CHAT).strip())

    assert isinstance(refused, p.Error)
    assert (refused.id, refused.code) == (request_id, "protocol")
    assert refused.message.startswith("not understood: ")
    # The service goes on.
    assert (chat.id, chat.code) == (8, "no_pair")


WORDS = st.sampled_from(
    ["type", "id", "load", "chat", "render", "set", "cancel", "unload", "messages", "target"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(WORDS, values, max_size=4),
    max_leaves=12,
)
LINES = st.binary(max_size=80).map(lambda line: line.replace(b"\n", b"")) | JSON.map(
    lambda value: json.dumps(value).encode()
)


@settings(max_examples=60)
@given(st.lists(LINES, max_size=6))
def test_any_bytes_are_answered_line_by_line(lines: list[bytes]) -> None:
    understood, refused = [], []
    for line in filter(bytes.strip, lines):
        try:
            understood.append(decode_request(line))
        except ProtocolError as error:
            refused.append(error.request_id)
    # What comes after a shutdown is not read.
    if any(isinstance(request, p.Shutdown) for request in understood):
        serve(*lines)
        return

    events = serve(*lines)
    assert protocol_errors(events) == refused
    answered = {e.id for e in events if isinstance(e, (p.Error, p.Unloaded))}
    assert {r.id for r in understood if not isinstance(r, (p.Set, p.Cancel))} <= answered


def test_an_event_that_cannot_be_encoded_fails_its_request_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not a client that is gone: that would cancel everything, and say nothing."""

    def encode_but_unloaded(event: Any) -> bytes:
        if isinstance(event, p.Unloaded) and event.id == 3:
            raise ProtocolError("“\\udce9” is not text in UTF-8")
        return encode(event)

    monkeypatch.setattr(process, "encode", encode_but_unloaded)
    unloads = [encode(p.Unload(id=id)).strip() for id in (2, 3, 4)]

    assert serve(*unloads) == [
        p.Unloaded(id=2),
        p.Error(
            id=3,
            code="internal",
            message="the engine cannot encode its answer (Unloaded): "
            "“\\udce9” is not text in UTF-8",
        ),
        p.Unloaded(id=4),
    ]


def test_a_client_that_is_gone_ends_the_service_quietly() -> None:
    pipe = Pipe()
    pipe.broken = True
    ClientPipes(io.BytesIO(encode(CHAT)), pipe).serve()
    assert pipe.getvalue() == b""


@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_text_is_sent_as_it_is_or_refused_with_its_odd_characters(text: str) -> None:
    message = p.Error(id=1, code="x", message=text)
    if any("\ud800" <= char <= "\udfff" for char in text):
        with pytest.raises(ProtocolError, match=r"(?s)\\ud.*is not text in UTF-8") as refused:
            encode(message)
        str(refused.value).encode()
        return
    line = encode(message)
    assert line.count(b"\n") == 1
    assert msgspec.json.decode(line)["message"] == text
