"""A server that refuses: keys, too many requests, models it does not have."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from eaglechat.links.http import client as http_client
from eaglechat.links.http.discovery import ask
from eaglechat.links.http.faults import ServerError, environment_fault
from eaglechat.links.http.server import server_link
from eaglechat.settings.model import ServerSettings
from eaglechat.wire import protocol as p
from eaglechat.wire.records import FinishReason
from tests.links.engines import chat
from tests.links.http.fault_server import (
    Ask,
    Connect,
    FaultServer,
    Handler,
    client_of,
    died,
    fault_server,
    raw,
    says,
    why,
)
from tests.waiting import until


def test_a_key_that_is_missing_or_wrong_is_said_and_never_quoted(
    connect: Connect, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.key = "right-key"
    assert "asks for a key: put it in EAGLECHAT_SERVER_KEY" in why(connect().answer(chat()))

    monkeypatch.setenv("BOX_KEY", "wrong-key")
    message = why(connect(key_env="BOX_KEY").answer(chat()))
    assert f"{server.url} does not accept the key (HTTP 401)" in message
    assert "wrong-key" not in message

    monkeypatch.setenv("BOX_KEY", "right-key")
    assert connect(key_env="BOX_KEY").answer(chat()).text == "one two"
    command = connect(key_command=("echo", "right-key"))
    assert command.answer(chat()).text == "one two"


@pytest.mark.parametrize(
    ("key", "entry", "reason"),
    [
        (None, {"key_env": "BOX_KEY"}, "the key of box is read from BOX_KEY, which is not set"),
        *(
            (odd, {"key_env": "BOX_KEY"},
             "the key of box (BOX_KEY) holds characters that no key has")
            for odd in ("two\nlines", "schlüssel")
        ),
        *(
            (None, {"key_command": (program,)}, f"the key_command of box, {program}, {why}")
            for program, why in (
                ("no-such-program", "cannot be started (FileNotFoundError)"),
                ("false", "failed (exit status 1)"),
                ("true", "printed nothing"),
            )
        ),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_had_is_named(
    monkeypatch: pytest.MonkeyPatch, key: str | None, entry: dict[str, Any], reason: str
) -> None:
    if key is not None:
        monkeypatch.setenv("BOX_KEY", key)
    assert died(client_of("http://127.0.0.1:9", **entry)) == reason


def test_a_command_for_a_key_ends_with_the_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http_client, "KEY_COMMAND_S", 3600.0)
    pid = tmp_path / "pid"
    command = ("sh", "-c", f"echo $$ >{pid}; exec sleep 3600")
    client = client_of("http://127.0.0.1:9", key_command=command)
    client.link.start()
    client.until(lambda: pid.exists() and pid.read_text(), "the command")
    sleep = int(pid.read_text())
    client.link.close()
    until(lambda: not psutil.pid_exists(sleep), "the end of the command")


def test_a_command_is_run_once_and_again_when_its_key_was_refused(
    connect: Connect, server: FaultServer, tmp_path: Path
) -> None:
    runs, printed = tmp_path / "runs", tmp_path / "printed"
    script = f"echo run >> {runs}; cat {printed}"
    printed.write_text("old-key\nlogin: me\n")
    server.key = "old-key"
    client = connect(key_command=("sh", "-c", script))
    other = connect(key_command=("sh", "-c", script))
    assert client.answer(chat()).text == other.answer(chat()).text == "one two"
    assert runs.read_text() == "run\n"

    server.key = "new-key"
    printed.write_text("new-key")
    assert "does not accept the key" in why(client.answer(chat()))
    assert client.answer(chat()).text == "one two"
    assert runs.read_text() == "run\nrun\n"


def test_a_key_among_the_headers_is_not_quoted_either(
    connect: Connect, server: FaultServer
) -> None:
    server.key = "right-key"
    headers = {"Authorization": "Bearer wrong-key", "X-Team": "me"}
    message = why(connect(headers=headers).answer(chat()))
    assert "does not accept the key (HTTP 401)" in message
    server.key = ""
    for server.chat in (
        says({"error": "no wrong-key for me"}, 500),
        says({"error": "no wrong-key for me"}),
        raw(b"data: no wrong-key for me\n\n"),
        raw(b"no wrong-key for me\n"),
    ):
        assert "no … for me" in why(connect(headers=headers).answer(chat()))
    # A long message is shortened: none of a key is left at its end.
    for before in range(290, 302):
        server.chat = says({"error": f"{before * 'x'}wrong-key is none"}, 500)
        assert "wron" not in why(connect(headers=headers).answer(chat()))


def test_reasoning_is_not_sent_to_those_who_would_refuse_it(
    connect: Connect, server: FaultServer
) -> None:
    past = (
        p.Message(role="user", content="one"),
        p.Message(role="assistant", content="two", reasoning="thought"),
        p.Message(role="user", content="three"),
    )
    connect().answer(chat(messages=past))
    server.models = {"data": [{"id": "m", "owned_by": "vllm"}]}
    connect().answer(chat(messages=past))
    plain, with_it = (one.body["messages"][1] for one in server.chats())
    assert plain == {"role": "assistant", "content": "two"}
    assert with_it == {**plain, "reasoning_content": "thought"}


def test_neither_key_nor_chat_follow_to_another_address(
    connect: Connect, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", "secret")
    with fault_server() as other:
        address = f"{other.url}/v1/chat/completions"
        server.chat = says({}, 307, Location=address)
        client = connect(key_env="BOX_KEY", headers={"X-Token": "secret"})
        message = why(client.answer(chat()))

    assert f"redirects to {address}" in message
    assert other.asked == []


def test_too_many_requests_waits_as_long_as_it_is_asked_to(
    answered: Ask, server: FaultServer
) -> None:
    answer = server.chat

    def busy(handler: Handler) -> None:
        server.chat = answer
        handler.json({"error": {"message": "slow down"}}, 429, Retry_After="0.2")

    began = time.monotonic()
    reply = answered(busy)
    assert reply.text == "one two"
    assert time.monotonic() - began >= 0.2
    assert [event.stage for event in reply.of(p.Loading)] == ["server"]
    assert len(server.chats()) == 2


def test_a_wait_can_be_cancelled_at_once(connect: Connect, server: FaultServer) -> None:
    server.chat = says({}, 429, Retry_After="19")
    client = connect()
    asked = client.ask(chat())
    client.until(lambda: asked.of(p.Loading), "the wait")
    client.link.send(p.Cancel(id=asked.id))
    client.end(asked)
    assert asked.last.end.finish_reason is FinishReason.CANCELLED
    assert len(server.chats()) == 1


@pytest.mark.parametrize(
    ("status", "wait", "why_not", "times"),
    [
        # What may pass is asked again before the first token.
        (503, "", "(HTTP 503): no", 3),
        (500, "", "(HTTP 500): no", 1),
        (400, "", "(HTTP 400): no", 1),
        (429, "600", " asks to wait 600 s (HTTP 429: no)", 1),
        # Waits that are none are passed over.
        *(
            (429, wait, " (HTTP 429: no)", 3)
            for wait in ("²", "soon", "0", "-1", "nan", "inf", "Wed, 21 Oct 2099 07:28:00 GMT")
        ),
    ],
)
def test_what_may_pass_is_asked_again_and_what_takes_too_long_is_said(  # noqa: PLR0917
    answered: Ask, server: FaultServer, status: int, wait: str, why_not: str, times: int
) -> None:
    more = {"Retry_After": wait} if wait else {}
    assert why(answered(says({"error": {"message": "no"}}, status, **more))).endswith(why_not)
    assert len(server.chats()) == times


def test_a_model_that_is_still_being_loaded_is_waited_for(
    answered: Ask, server: FaultServer
) -> None:
    answer, left = server.chat, [6]

    def loading(handler: Handler) -> None:
        left[0] -= 1
        if not left[0]:
            server.chat = answer
        handler.json({"error": {"message": "Loading model"}}, 503)

    assert answered(loading).text == "one two"


def test_a_model_it_does_not_have(server: FaultServer, connect: Connect) -> None:
    client = connect()
    assert why(client.answer(p.Load(target="x"))) == (
        f"{server.url} has no model named “x”; it has m"
    )
    server.chat = says({"error": {"message": "gone"}}, 404)
    assert why(client.answer(chat())) == (f"{server.url} has no model named “m” (HTTP 404: gone)")
    server.models = {"data": [{"id": "m"}, {"id": "n"}]}
    assert "model in its entry: m, n" in why(client.answer(p.Load(target="")))
    server.models = {"data": []}
    assert why(client.answer(p.Load(target=""))).startswith(f"{server.url} has no model: load")
    server.models = {"data": [{"id": f"m{n}"} for n in range(420)]}
    few = "it has " + ", ".join(f"m{n}" for n in range(20)) + " and 400 more"
    assert why(client.answer(p.Load(target="x"))).endswith(few)
    server.models = says({"error": "none"}, 404)
    assert why(client.answer(p.Load(target=""))).endswith(
        "or a call such as /chat/completions. If it has no list of its models, "
        "name one with --model, or with model in its entry"
    )


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "http://", "http:/h:80", "http://u:secret@h", "http://h:99999"]
)
def test_what_is_no_address(url: str) -> None:
    from eaglechat.wire.errors import EngineError

    with pytest.raises(EngineError) as raised:
        server_link(ServerSettings(name="box", url=url)).start()
    assert "secret" not in str(raised.value)


def extra(*where: str) -> dict[str, Any]:
    """How pydantic refuses a field; it quotes what it was given."""
    one = {
        "type": "extra_forbidden",
        "loc": ["body", *where],
        "msg": "Extra inputs are not permitted",
    }
    return {"detail": [{**one, "input": {"temperature": 0, "seed": 1}}]}


def told(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "code": 400, **more}}


@pytest.mark.parametrize(
    ("field", "status", "said"),
    [
        ("stream_options", 422, extra("stream_options", "include_usage")),
        ("stream_options", 422, {"object": "error", "message": extra("stream_options")}),
        ("stream_options", 400, told("Unknown parameter: 'include_usage'.")),
        ("stream_options", 400, told("Unsupported parameter", param="stream_options")),
        ("seed", 400, {"error": "property 'seed' is unsupported"}),
        ("seed", 422, extra("seed")),
        ("top_p", 400, told("`temperature` and `top_p` cannot both be specified for this model.")),
        ("temperature", 400, told("Unsupported value: 'temperature' does not support 0.0.")),
        ("stop", 400, told("stop: Extra inputs are not permitted")),
        ("stop", 400, told("Unknown field stop")),
        ("seed", 400, told("Extra inputs are not permitted: seed")),
        ("seed", 400, told('"seed" is not allowed')),
        (
            "max_tokens",
            400,
            told("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        ),
    ],
)
def test_a_request_is_made_again_without_the_optional_field_that_is_refused(
    connect: Connect,
    server: FaultServer,
    field: str,
    status: int,
    said: dict[str, Any],
) -> None:
    answer = server.chat

    def refuse(handler: Handler) -> None:
        if field in server.chats()[-1].body:
            handler.json(said, status)
        else:
            answer(handler)

    server.chat = refuse
    client = connect()
    for _ in range(2):
        assert client.answer(chat(stop=("END",))).text == "one two"
    # The second request knows.
    first, *others = (one.body for one in server.chats())
    assert len(others) == 2
    left = {name: value for name, value in first.items() if name not in (field, "seed")}
    left |= {"max_completion_tokens": 40} if field == "max_tokens" else {}
    assert [{**one, "seed": 0} for one in others] == [{**left, "seed": 0}] * 2 or field == "seed"


@pytest.mark.parametrize(
    "said",
    [
        told("the last message must be of the user: please stop"),
        told("'max_tokens' must be at most 20"),
        told("messages.0.content: Field required"),
        {"detail": [{"loc": ["body", "messages"], "msg": "Field required", "input": {"seed": 1}}]},
    ],
)
def test_a_refusal_of_what_is_needed_is_one(
    answered: Ask, server: FaultServer, said: dict[str, Any]
) -> None:
    assert "refuses this request (HTTP 422): " in why(answered(says(said, 422), stop=("END",)))
    assert len(server.chats()) == 1


@pytest.mark.parametrize(
    "said", [told("streaming is not supported for this model"), extra("stream")], ids=str
)
def test_a_server_that_does_not_stream_answers_in_one_piece(
    answered: Ask, server: FaultServer, said: dict[str, Any]
) -> None:
    def answer(handler: Handler) -> None:
        message = {"role": "assistant", "content": "one two"}
        whole = {"choices": [{"message": message, "finish_reason": "stop"}]}
        is_streamed = "stream" in server.chats()[-1].body
        handler.json(said if is_streamed else whole, 400 if is_streamed else 200)

    assert answered(answer).text == "one two"
    assert "stream_options" not in server.chats()[-1].body


def test_reasoning_that_is_refused_is_not_sent_again(connect: Connect, server: FaultServer) -> None:
    answer = server.chat

    def refuse(handler: Handler) -> None:
        if "reasoning_content" in server.chats()[-1].body["messages"][0]:
            handler.json(extra("messages", "0", "reasoning_content"), 422)
        else:
            answer(handler)

    server.models, server.chat = {"data": [{"id": "m", "owned_by": "vllm"}]}, refuse
    past = (p.Message(role="assistant", content="two", reasoning="thought"), *chat().messages)
    assert connect().answer(chat(messages=past)).text == "one two"


@pytest.mark.parametrize(
    "models",
    [
        says({"error": "no such page"}, 404),
        says({"detail": "Method Not Allowed"}, 405),
        says({"error": "Missing scopes: api.model.read"}, 403),
        says({}, 501),
        says({"error": "boom"}, 500),
        raw(b"<html>Welcome</html>", kind="text/html"),
        {},
        [],
        "models",
        None,
        {"data": None},
        {"data": {"m": 1}},
        {"data": [{"owner": "x"}, None, 3]},
    ],
)
def test_a_model_that_is_named_needs_no_list(server: FaultServer, models: Any) -> None:
    server.models = models
    client = client_of(server.url)
    client.ready()
    assert why(client.answer(p.Load(target="")))
    loaded = client.answer(p.Load(target="sonar")).last
    assert isinstance(loaded, p.Loaded)
    assert loaded.pair.target.name == "sonar"
    assert client.answer(chat()).text == "one two"
    assert server.chats()[0].body["model"] == "sonar"
    client.link.close()
    found = ask(ServerSettings(name="box", url=server.url, model="sonar"))
    assert [one.id for one in found.models] == ["sonar"]


def test_a_comparison_asks_the_model_without_a_draft(connect: Connect, server: FaultServer) -> None:
    client, other = connect(plain_model="m-plain"), connect()
    assert [one.link.hello and one.link.hello.can.plain for one in (client, other)] == [True, False]
    client.answer(chat())
    client.answer(chat(speculation=p.Speculation(enabled=False, n_draft_max=0)))
    assert [one.body["model"] for one in server.chats()] == ["m", "m-plain"]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("ALL_PROXY", "gopher://127.0.0.1:9", "the proxy that the environment names"),
        ("SSL_CERT_FILE", "/no/such/file", "the certificates of SSL_CERT_FILE or SSL_CERT_DIR"),
    ],
)
def test_an_environment_that_cannot_be_used_is_said(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ServerError, match=reason):
        ask(ServerSettings(name="box", url="http://far.invalid"))


def test_a_proxy_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:secret@127.0.0.1:9/")
    far = ServerSettings(name="box", url="http://far.invalid")
    with pytest.raises(ServerError, match=r"names, 127[.]0[.]0[.]1:9, does not") as raised:
        ask(far)
    assert "secret" not in str(raised.value)
    monkeypatch.setenv("no_proxy", "far.invalid")
    with pytest.raises(ServerError, match=r"the host of http://far[.]invalid is not known"):
        ask(far)


def test_a_socks_proxy_says_what_it_needs() -> None:
    assert "install socksio" in str(environment_fault(ImportError("socksio")))
