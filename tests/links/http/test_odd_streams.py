"""Replies as some server, somewhere, sends them: they are read, or refused in words."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from eaglechat.links.http.discovery import ask
from eaglechat.settings.model import ServerSettings
from eaglechat.wire import protocol as p
from eaglechat.wire.records import FinishReason, Part
from tests.links.engines import chat
from tests.links.http.fault_server import Ask, Connect, FaultServer, Handler, raw, says, why
from tests.waiting import PATIENCE_S


def data(value: Any) -> bytes:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {said}\n\n".encode()


def said(finish_reason: Any = None, **delta: Any) -> bytes:
    return data({"choices": [{"delta": delta, "finish_reason": finish_reason}]})


def ended(reason: Any = "stop", **more: Any) -> bytes:
    return data({"choices": [{"delta": {}, "finish_reason": reason}], **more})


DONE = data("[DONE]")
FINISH = {"finish_reason": "stop"}
COUNTED = data({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
BODY = {
    "choices": [{"message": {"role": "assistant", "content": "größe ✓"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
}
LINES = b"".join(
    json.dumps({"choices": [one]}).encode() + b"\n"
    for one in ({"delta": {"content": "größe "}}, {"delta": {"content": "✓"}, **FINISH})
)


def halves(text: str) -> bytes:
    """A piece for each unit of UTF-16, of which a character beyond U+FFFF has two."""
    units = text.encode("utf-16-be")
    return b"".join(
        b'data: {"choices": [{"delta": {"content": "\\u%s"}}]}\n\n'
        % units[i : i + 2].hex().encode()
        for i in range(0, len(units), 2)
    )


WHOLE = said(content="größe ✓") + ended() + DONE


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(raw(WHOLE), id="whole"),
        pytest.param(raw(WHOLE, version="1.0"), id="HTTP/1.0"),
        pytest.param(raw(WHOLE.removesuffix(DONE)), id="no [DONE]"),
        pytest.param(raw(WHOLE, kind="text/event-stream; charset=iso-8859-1"), id="charset"),
        pytest.param(raw(gzip.compress(WHOLE), also="Content-Encoding: gzip\r\n"), id="gzip"),
        pytest.param(raw(data({"choices": None, "usage": None}), WHOLE), id="no choices"),
        pytest.param(
            raw(said(content=[{"type": "text", "text": "größe ✓"}]) + ended() + DONE), id="parts"
        ),
        pytest.param(raw(said(content=None, tool_calls=[{"index": 0}]), WHOLE), id="tools"),
        # Lines and events
        pytest.param(raw(WHOLE.replace(b"data: ", b"data:")), id="no space"),
        pytest.param(raw(b"\xef\xbb\xbf" + WHOLE), id="BOM"),
        pytest.param(raw(b"retry: 5\nid: 1\nevent: message\n" + WHOLE), id="other fields"),
        pytest.param(raw(b"event: ping\ndata: {}\n\n" + WHOLE), id="an event that says nothing"),
        pytest.param(raw(WHOLE.replace(b', "', b',\ndata: "')), id="data in several lines"),
        pytest.param(raw(WHOLE.replace(b"\n\n", b"\n")), id="no blank lines"),
        pytest.param(raw(WHOLE.removesuffix(b"\n\n")), id="no end behind [DONE]"),
        *(
            pytest.param(raw((said(content="größe") + said(content=" ✓", **FINISH)).rstrip() + end),
                         id=f"the last event ends in {end!r}")
            for end in (b"", b"\n", b"\r\n", b"\r")
        ),
        *(
            pytest.param(raw(WHOLE.removesuffix(DONE) + b"data: " + end), id=f"{end!r} at the end")
            for end in (b' "[DONE]" ', b"[done]", b"DONE\n\n")
        ),
        pytest.param(raw(said(content="größe ✓") + COUNTED), id="counts in place of a reason"),
        # Types
        *(
            pytest.param(raw(WHOLE, kind=kind), id=kind or "no type")
            for kind in ("text/plain", "application/x-ndjson", "application/json", "text/html", "")
        ),
        pytest.param(raw(LINES, kind="application/x-ndjson"), id="lines of JSON"),
        pytest.param(raw(LINES.rstrip(), kind="application/x-ndjson"), id="lines without an end"),
        pytest.param(raw(json.dumps(BODY).encode(), kind="application/json"), id="no stream"),
        pytest.param(raw(json.dumps(BODY, indent=2).encode(), kind=""), id="no stream, indented"),
        # Texts
        pytest.param(raw(halves("größe ✓"), WHOLE[-len(DONE + ended()):]), id="escaped"),
        pytest.param(raw(said(content=[{"text": "größe"}, " ✓"]), ended()), id="list"),
        pytest.param(raw(said(content={"type": "text", "text": "größe ✓"}), ended()), id="object"),
        pytest.param(raw(data({"choices": [{"text": "größe ✓"}]}), ended()), id="text"),
        pytest.param(raw(data({"choices": [None, {"delta": None}]}), WHOLE), id="delta is null"),
        pytest.param(raw(data({"choices": [], "usage": None, "error": None}), WHOLE), id="empty"),
        pytest.param(raw(data({"choices": [{"delta": "größe ✓", "index": "0"}]}), ended()),
                     id="delta is a text"),
        pytest.param(raw(data({"choices": [{"delta": True}]}), WHOLE), id="odd delta"),
        pytest.param(raw(said(content={"parts": [{"text": "größe ✓"}]}), ended()), id="in parts"),
        # Reasons
        *(
            pytest.param(raw(said(content="größe ✓"), ended(reason)), id=f"reason {reason}")
            for reason in ("eos", "STOP", "end_turn")
        ),
        pytest.param(raw(said("null", content="größe ✓"), ended()), id="no reason"),
        # Counts
        *(
            pytest.param(raw(said(content="größe ✓"), ended(usage=usage)), id=f"usage {usage}")
            for usage in (
                None, {}, [], "none", *({"prompt_tokens": one, "completion_tokens": one}
                for one in (2.0, 2.25, "2", "2.5", "two", -2, None, {}, [], True, 1e300, 10**40)),
                {"completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0.5}},
                {"completion_tokens": 2, "completion_tokens_details": [1]},
            )
        ),
        pytest.param(raw(said(content="größe ✓"), b'data: {"usage": {"prompt_tokens": NaN}}\n\n',
                         ended()), id="NaN"),
        pytest.param(raw(said(content="größe ✓"), ended(timings={"predicted_n": "x"}, metrics=[])),
                     id="other counts"),
    ],
)  # fmt: skip
def test_the_text_is_the_same_however_it_is_sent(
    answered: Ask, server: FaultServer, answer: Callable[[Handler], None]
) -> None:
    reply = answered(answer)
    assert reply.text == "größe ✓"
    assert reply.last.end.finish_reason is FinishReason.STOP
    assert len(server.chats()) == 1


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((halves("a😀b"), ended()), "a😀b"),
        ((halves("😀😀"), ended()), "😀😀"),
        ((halves("a😀")[: len(halves("ab"))], said(content="b"), ended()), "a�b"),
        ((halves("a😀")[: len(halves("ab"))], ended()), "a�"),
        ((halves("😀")[len(halves("a")) :], said(content="b"), ended()), "�b"),
    ],
    ids=["two halves", "four halves", "the first alone", "the first at the end", "the second"],
)
def test_half_a_character_waits_for_its_other_half(
    answered: Ask, pieces: tuple[bytes, ...], text: str
) -> None:
    assert answered(raw(*pieces)).text == text


@pytest.mark.parametrize(
    "thought",
    [
        {"reasoning_content": "Hm."},
        {"reasoning": "Hm."},
        {"thinking": "Hm."},
        {"reasoning": {"content": "Hm."}},
        {"reasoning": [{"type": "reasoning.text", "text": "Hm."}]},
        {"reasoning_content": "Hm.", "reasoning": "Hm."},
        {"reasoning_text": "Hm."},
        {"thought": "Hm."},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}]},
        {"reasoning": {"summary": [{"type": "summary_text", "text": "Hm."}]}},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]},
    ],
    ids=str,
)
def test_reasoning_is_reasoning_wherever_it_stands(answered: Ask, thought: dict[str, Any]) -> None:
    tokens = [
        token for round_ in answered(raw(said(**thought), WHOLE)).rounds for token in round_.tokens
    ]
    parts = [(token.text, token.part) for token in tokens]
    assert parts == [("Hm.", Part.REASONING), ("größe ✓", Part.ANSWER)]


def test_bytes_that_are_no_text_spoil_only_themselves(answered: Ask) -> None:
    assert answered(raw(WHOLE.replace("ö".encode(), b"\xf6"))).text == "gr�ße ✓"


def test_a_reply_is_over_though_the_server_is_slow_to_close(
    answered: Ask, server: FaultServer
) -> None:
    def linger(handler: Handler) -> None:
        raw(WHOLE)(handler)
        handler.wait_for_the_client()

    assert answered(linger).text == "größe ✓"
    assert server.closed.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("prompt", "reason"), [(2000, FinishReason.CONTEXT), (20, FinishReason.LENGTH)]
)
def test_a_limit_of_the_server_s_own_is_not_the_end_of_the_context(
    answered: Ask, prompt: int, reason: FinishReason
) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": 40}
    reply = answered(
        raw(said(content="one") + ended("length", usage=usage) + DONE), max_tokens=None
    )
    assert reply.last.end.finish_reason is reason


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (raw(said(content="one") + ended("content_filter") + DONE), "the content filter of {url} "),
        (
            raw(said(content="one") + data({"object": "error", "message": "dead"}) + DONE),
            "{url} failed: dead;",
        ),
        (says({"error": {"message": "busy"}}), "{url} failed: busy"),
        (raw(data({"error": "busy"})), "{url} failed: busy"),
        (says({"detail": "busy"}), "{url} failed: busy"),
        (says({"errors": [{"message": "busy"}]}), "{url} failed: busy"),
        (raw(data({"error": {"code": 7}})), '{url} failed: {{"error": {{"code": 7}}}}'),
        (raw(data('{"error": {"message": "half \\ud800"}}')), "{url} failed: half ?"),
        (raw(b'event: error\ndata: {"message": "busy"}\n\n'), "{url} failed: busy"),
        (raw(b'data: {"message": "busy"}\nevent: error\n\n'), "{url} failed: busy"),
        (raw(b"event: error\ndata: no room\n"), "{url} failed: no room"),
        (raw(said(content="one") + ended("error")), "{url} failed: no reason given"),
        (raw(said(content="one") + DONE[:-6]), "{url} broke off during the reply"),
        (raw(b"<html>Welcome</html>", kind="text/html"), "the answer of {url} is not understood"),
        (raw(LINES[:20]), "{url} broke off during the reply"),
        (
            raw(said(content="one") + b'event: message\ndata: {"choi'),
            "{url} broke off during the reply",
        ),
        (
            raw(said(content="one"), data({"error": {"message": "no room", "code": 500}})),
            "{url} failed: no room; the text received is kept",
        ),
        (raw(data({"choices": []})), "{url} broke off during the reply"),
        (says({"choices": []}), "the answer of {url} is not understood"),
        *(
            (raw(said(content="one"), data(garbage)), "the answer of {url} is not understood")
            for garbage in ("{not json", '{"choices": 3}', "[" * 100_000)
        ),
    ],
    ids=[
        "content filter", "an older vLLM's error", "an error with status 200", "a text", "a detail",
        "errors", "a number", "half a character", "an event", "its name last", "an event of text",
        "a reason", "half of [DONE]", "a page", "half an object", "half an event with a name",
        "an error after text", "nothing", "no reply",
        "half an event", "odd choices", "deep garbage",
    ],
)  # fmt: skip
def test_a_failure_that_is_no_such_status_is_one(
    answered: Ask,
    server: FaultServer,
    answer: Callable[[Handler], None],
    says: str,
) -> None:
    asked = answered(answer)
    assert why(asked).startswith(says.format(url=server.url))
    assert asked.text in ("", "one")
    assert len(server.chats()) in (1, 3)


MODEL = {"id": "m", "owned_by": "nobody"}


@pytest.mark.parametrize(
    "models",
    [
        [MODEL],
        ["m"],
        {"models": ["m"]},
        {"models": [{"name": "m"}]},
        {"data": [{"model": "m", "id": None}, {"id": ""}, None]},
        {"data": [{**MODEL, "status": {"value": 3}, "max_model_len": -1.5}]},
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


def test_a_llama_server_that_counts_nothing_is_read_as_it_writes(
    connect: Connect, server: FaultServer
) -> None:
    """As behind a proxy that shows no more than the API."""

    def write(handler: Handler) -> None:
        handler.begin()
        handler.text("one")
        handler.wait_for_the_client()

    server.models = {"data": [{**MODEL, "owned_by": "llamacpp"}]}
    server.chat = write
    client = connect()
    assert client.link.hello is not None
    assert client.link.hello.engine == "llama-server"
    asked = client.ask(chat())
    client.until(lambda: asked.text == "one", "the text, before the reply is over")
    client.link.send(p.Cancel(id=asked.id))
    client.end(asked)


def test_another_server_at_the_same_address_says_hello(
    connect: Connect, server: FaultServer
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
    assert server.closed.wait(30)
