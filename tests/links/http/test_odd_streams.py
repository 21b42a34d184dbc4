"""Replies as some server, somewhere, sends them: they are read, or refused in words."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from eaglechat.links.http.discovery import ask
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire import protocol as p
from eaglechat.wire.records import FinishReason
from tests.engine_client import Client
from tests.links.engines import chat
from tests.links.http.fault_server import FaultServer, Handler, why


def data(value: Any) -> bytes:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {said}\n\n".encode()


def said(**delta: Any) -> bytes:
    return data({"choices": [{"delta": delta}]})


def ended(reason: str = "stop", **more: Any) -> bytes:
    return data({"choices": [{"delta": {}, "finish_reason": reason}], **more})


DONE = data("[DONE]")
WHOLE = said(content="größe ✓") + ended() + DONE


def raw(
    *pieces: bytes, kind: str = "text/event-stream", also: str = "", version: str = "1.1"
) -> Any:
    """Writes an answer as it stands, which the end of the connection ends."""

    def write(handler: Handler) -> None:
        handler.close_connection = True
        head = f"HTTP/{version} 200 OK\r\nContent-Type: {kind}\r\n{also}\r\n"
        handler.wfile.write(head.encode())
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()

    return write


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(raw(WHOLE), id="whole"),
        pytest.param(raw(WHOLE, version="1.0"), id="HTTP/1.0"),
        pytest.param(raw(*(WHOLE[i : i + 1] for i in range(len(WHOLE)))), id="byte by byte"),
        pytest.param(raw(WHOLE.replace(b"\n", b"\r\n")), id="CRLF"),
        pytest.param(raw(b": keep-alive\n\n" * 3 + WHOLE), id="comments"),
        pytest.param(raw(WHOLE.removesuffix(DONE)), id="no [DONE]"),
        pytest.param(raw(WHOLE, kind="text/event-stream; charset=iso-8859-1"), id="charset"),
        pytest.param(raw(gzip.compress(WHOLE), also="Content-Encoding: gzip\r\n"), id="gzip"),
        pytest.param(raw(data({"choices": None, "usage": None}), WHOLE), id="no choices"),
        pytest.param(
            raw(said(content=[{"type": "text", "text": "größe ✓"}]) + ended() + DONE), id="parts"
        ),
        pytest.param(raw(said(content=None, tool_calls=[{"index": 0}]), WHOLE), id="tools"),
    ],
)
def test_the_text_is_the_same_however_it_is_sent(
    connect: Callable[..., Client], server: FaultServer, answer: Callable[[Handler], None]
) -> None:
    server.chat = answer
    reply = connect().answer(chat())
    assert reply.text == "größe ✓"
    assert reply.last.end.finish_reason is FinishReason.STOP
    assert len(server.chats()) == 1


def test_bytes_that_are_no_text_spoil_only_themselves(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    server.chat = raw(WHOLE.replace("ö".encode(), b"\xf6"))
    assert connect().answer(chat()).text == "gr�ße ✓"


def test_a_reply_is_over_though_the_server_is_slow_to_close(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    def linger(handler: Handler) -> None:
        raw(WHOLE)(handler)
        handler.wait_for_the_client()

    server.chat = linger
    assert connect().answer(chat()).text == "größe ✓"
    assert server.closed.wait(30)


@pytest.mark.parametrize(
    ("prompt", "reason"), [(2000, FinishReason.CONTEXT), (20, FinishReason.LENGTH)]
)
def test_a_limit_of_the_server_s_own_is_not_the_end_of_the_context(
    connect: Callable[..., Client], server: FaultServer, prompt: int, reason: FinishReason
) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": 40}
    server.chat = raw(said(content="one") + ended("length", usage=usage) + DONE)
    reply = connect().answer(chat(max_tokens=None))
    assert reply.last.end.finish_reason is reason


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (raw(said(content="one") + ended("content_filter") + DONE), "the content filter of {url} "),
        (
            raw(said(content="one") + data({"object": "error", "message": "dead"}) + DONE),
            "{url} failed during the reply: dead;",
        ),
        (lambda handler: handler.json({"error": {"message": "busy"}}), "{url} failed: busy"),
    ],
    ids=["content filter", "an older vLLM's error", "an error with status 200"],
)
def test_a_failure_that_is_no_such_status_is_one(
    connect: Callable[..., Client],
    server: FaultServer,
    answer: Callable[[Handler], None],
    says: str,
) -> None:
    server.chat = answer
    assert why(connect().answer(chat())).startswith(says.format(url=server.url))


def test_the_context_is_known_once_the_prompt_is_counted(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    reply = connect().answer(chat())
    assert [event.round.n_past for event in reply.of(p.RoundDone)] == [0, 0]
    assert reply.last.end.n_past == 5 + 2


@pytest.mark.parametrize("wait", ["²", "soon", "-1", "inf", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_wait_that_is_none_is_passed_over(
    connect: Callable[..., Client], server: FaultServer, wait: str
) -> None:
    server.chat = lambda handler: handler.json({"error": "x"}, 429, Retry_After=wait)
    assert why(connect().answer(chat())).endswith(" (HTTP 429: x)")


MODEL = {"id": "m", "owned_by": "nobody"}


@pytest.mark.parametrize(
    "models",
    [
        [MODEL],
        {"data": [{**MODEL, "owned_by": None}]},
        {"data": [{**MODEL, "status": "active"}]},
        {"data": [{**MODEL, "context_length": "4096"}]},
        {"data": [{**MODEL, "meta": {"n_ctx": None}}]},
    ],
)
def test_a_model_is_known_by_its_name_whatever_else_is_said_of_it(
    server: FaultServer, models: Any
) -> None:
    server.models = models
    assert [one.id for one in ask(ServerSettings(name="box", url=server.url)).models] == ["m"]


def test_a_llama_server_of_which_a_proxy_shows_no_more_than_the_api(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    server.models = {"data": [{**MODEL, "owned_by": "llamacpp"}]}
    client = connect()
    assert client.answer(chat()).text == "one two"
    assert client.link.hello is not None
    assert client.link.hello.engine == "llama-server"


def test_a_llama_server_that_counts_nothing_is_read_as_it_writes(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    def write(handler: Handler) -> None:
        handler.begin()
        handler.text("one")
        handler.wait_for_the_client()

    server.models = {"data": [{**MODEL, "owned_by": "llamacpp"}]}
    server.chat = write
    client = connect()
    asked = client.ask(chat())
    client.until(lambda: asked.text == "one", "the text, before the reply is over")
    client.link.send(p.Cancel(id=asked.id))
    client.end(asked)


def test_another_server_at_the_same_address_says_hello(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    client = connect()
    server.models = {"data": [{**MODEL, "owned_by": "vllm"}]}
    client.answer(p.Load(target="m"))
    assert client.link.hello is not None
    assert client.link.hello.engine == "vLLM"


def test_a_page_of_the_server_is_not_waited_for_as_long_as_a_reply(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eaglechat.links.http.client.PAGE_S", 0.2)
    server.models = Handler.wait_for_the_client
    with pytest.raises(Exception, match=r"has sent nothing for 0\.2 s"):
        ask(ServerSettings(name="box", url=server.url))
