"""Whatever goes wrong between here and a server: a sentence, and nothing that came is lost."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eaglechat.links.base import Died
from eaglechat.links.http import jobs
from eaglechat.links.http.link import HttpLink
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire import protocol as p
from eaglechat.wire.records import FinishReason, Origin
from tests.links.engines import Asked, Client, chat
from tests.links.http.fault_server import FaultServer, Handler, fault_server

NOWHERE = (Path("m"), Path("m"))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "RETRY_WAITS_S", (0.01, 0.01))
    monkeypatch.setattr(jobs, "LOADING_WAIT_S", 0.01)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server() as faults:
        yield faults


def client_of(url: str, **more: Any) -> Client:
    return Client(HttpLink(ServerSettings(name="box", url=url, **more)), NOWHERE)


@pytest.fixture
def connect(server: FaultServer) -> Iterator[Callable[..., Client]]:
    """A client of the server, with its only model loaded."""
    clients = []

    def loaded(**more: Any) -> Client:
        client = client_of(server.url, **more)
        clients.append(client)
        client.ready()
        assert isinstance(client.answer(p.Load(target="")).events[-1], p.Loaded)
        return client

    yield loaded
    for client in clients:
        client.link.close()


def text_of(asked: Asked) -> str:
    return "".join(event.round.text for event in asked.of(p.RoundDone))


def why(asked: Asked) -> str:
    error = asked.events[-1]
    assert isinstance(error, p.Error), error
    return error.message


def died(client: Client) -> str:
    client.link.start()
    client.until(lambda: any(isinstance(news, Died) for news in client.heard), "its death")
    client.link.close()
    return next(news for news in client.heard if isinstance(news, Died)).reason


def test_a_reply_of_any_server_is_its_text(connect: Callable[..., Client]) -> None:
    reply = connect().answer(chat())
    done = reply.events[-1]
    tokens = [token for event in reply.of(p.RoundDone) for token in event.round.tokens]

    assert text_of(reply) == "one two"
    assert {(token.id, token.origin) for token in tokens} == {(None, Origin.UNKNOWN)}
    assert (done.end.tokens, done.end.finish_reason) == (2, FinishReason.STOP)
    assert (done.stats.tested, done.stats.drafted) == (0, 0)


def test_what_is_asked_is_what_every_such_server_understands(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    connect().answer(chat(stop=("END",)))
    body = server.chats()[0].body
    assert body.pop("seed") >= 0
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "the cat sat on the mat"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "top_p": 0.95,
        "max_tokens": 40,
        "stop": ["END"],
    }


# --- it does not answer ---


def test_nobody_is_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        reason = died(client_of(f"http://127.0.0.1:{port}"))
    assert reason == f"nothing answers at http://127.0.0.1:{port}: is the server running there?"


def test_a_host_that_does_not_exist() -> None:
    reason = died(client_of("http://no-such-host.invalid"))
    assert reason == "the host of http://no-such-host.invalid is not known"


def test_no_connection_within_its_time() -> None:
    # Its queue is full: the kernel answers no further connection.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        reason = died(client_of(f"http://127.0.0.1:{address[1]}", connect_timeout=0.3))
        for one in waiting:
            one.close()
    assert reason.endswith("did not answer within 0.3 s")


def test_what_is_no_such_server() -> None:
    with fault_server() as server:
        server.models = ["not", "models"]
        assert "is not understood" in died(client_of(server.url))


def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    certificate = _certificate(tmp_path)
    with fault_server(certificate) as server:
        reason = died(client_of(server.url))
        assert f"the certificate of {server.url} is not trusted" in reason
        assert "ca_file" in reason

        known = client_of(server.url, ca_file=str(certificate))
        known.ready()
        known.answer(p.Load(target=""))
        assert text_of(known.answer(chat())) == "one two"
        known.link.close()


def _certificate(folder: Path) -> Path:
    """A certificate that signs itself, and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    file = folder / "server.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", folder / "key.pem", "-out", folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    file.write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
    return file


def test_a_server_that_goes_away_and_comes_back(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    client, answer = connect(), server.chat

    def away(handler: Handler) -> None:
        handler.close_connection = True

    server.chat = away
    assert "broke" in why(client.answer(chat()))
    server.chat = answer
    assert text_of(client.answer(chat())) == "one two"


# --- it answers slowly, or in pieces ---


def test_a_first_token_that_is_long_in_coming_can_be_cancelled_at_once(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    server.chat = Handler.wait_for_the_client
    client = connect()
    asked = client.ask(chat())
    client.until(server.chats, "the request")
    client.link.send(p.Cancel(id=asked.id))
    client.end(asked)

    assert asked.events[-1].end.finish_reason is FinishReason.CANCELLED
    assert server.closed.wait(30)


def test_a_cancel_in_mid_reply_closes_the_connection_and_keeps_what_came(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    def begin(handler: Handler) -> None:
        handler.begin()
        handler.text("one")
        handler.wait_for_the_client()

    server.chat = begin
    client = connect()
    asked = client.ask(chat())
    client.until(lambda: text_of(asked), "a token")
    client.link.send(p.Cancel())
    client.end(asked)

    assert asked.events[-1].end.finish_reason is FinishReason.CANCELLED
    assert text_of(asked) == "one"
    assert server.closed.wait(30)


def test_a_closed_link_closes_the_connection(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    server.chat = Handler.wait_for_the_client
    client = connect()
    client.ask(chat())
    client.until(server.chats, "the request")
    client.link.close()
    assert server.closed.wait(30)


def test_a_stall_in_mid_reply_ends_it(connect: Callable[..., Client], server: FaultServer) -> None:
    def stall(handler: Handler) -> None:
        handler.begin()
        handler.text("one")
        handler.wait_for_the_client()

    server.chat = stall
    asked = connect(timeout=0.3).answer(chat())
    assert text_of(asked) == "one"
    assert why(asked) == (
        f"{server.url} has sent nothing for 0.3 s (timeout of its entry); what came of the reply "
        "is kept"
    )


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_cut_in_mid_reply_keeps_what_came_and_is_not_repeated(
    connect: Callable[..., Client], server: FaultServer, is_chunked: bool
) -> None:
    def cut(handler: Handler) -> None:
        if is_chunked:
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            event = b'data: {"choices": [{"delta": {"content": "one"}}]}\n\n'
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            handler.close_connection = True
        else:
            handler.begin()
            handler.text("one")

    server.chat = cut
    asked = connect().answer(chat())
    assert text_of(asked) == "one"
    assert why(asked).endswith("; what came of the reply is kept")
    assert len(server.chats()) == 1


@pytest.mark.parametrize("garbage", ["{not json", '{"choices": 3}', "[" * 100_000])
def test_garbage_in_mid_reply(
    connect: Callable[..., Client], server: FaultServer, garbage: str
) -> None:
    def babble(handler: Handler) -> None:
        handler.begin()
        handler.text("one")
        handler.event(garbage)

    server.chat = babble
    asked = connect().answer(chat())
    assert text_of(asked) == "one"
    assert why(asked).startswith(f"what {server.url} answers is not understood")


def test_an_event_without_an_end_does_not_fill_the_memory(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    def flood(handler: Handler) -> None:
        handler.begin()
        for _ in range(64):
            handler.wfile.write(b"x" * 2**20)

    server.chat = flood
    assert "is not understood" in why(connect().answer(chat()))


def test_a_page_in_place_of_a_stream(connect: Callable[..., Client], server: FaultServer) -> None:
    server.chat = lambda handler: handler.json({"choices": []})
    assert "is not understood" in why(connect().answer(chat()))


def test_an_error_in_the_stream_after_ten_tokens(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    def fail(handler: Handler) -> None:
        handler.begin()
        for number in range(10):
            handler.text(f" {number}")
        handler.event({"error": {"message": "CUDA out of memory", "code": 500}})

    server.chat = fail
    asked = connect().answer(chat())
    assert text_of(asked) == " 0 1 2 3 4 5 6 7 8 9"
    assert why(asked) == (
        f"{server.url} failed in mid-reply: CUDA out of memory; what came of the reply is kept"
    )
    assert len(server.chats()) == 1


# --- it refuses ---


def test_a_key_that_is_missing_or_wrong_is_said_and_never_quoted(
    connect: Callable[..., Client], server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.key = "right-key"
    assert "asks for a key" in why(connect().answer(chat()))

    monkeypatch.setenv("BOX_KEY", "wrong-key")
    message = why(connect(key_env="BOX_KEY").answer(chat()))
    assert f"{server.url} does not accept the key (HTTP 401)" in message
    assert "wrong-key" not in message

    monkeypatch.setenv("BOX_KEY", "right-key")
    assert text_of(connect(key_env="BOX_KEY").answer(chat())) == "one two"
    command = connect(key_command=("echo", "right-key"))
    assert text_of(command.answer(chat())) == "one two"


def test_a_key_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOX_KEY", raising=False)
    reason = died(client_of("http://127.0.0.1:9", key_env="BOX_KEY"))
    assert reason == "the key of box is to be in BOX_KEY, which is not set"
    reason = died(client_of("http://127.0.0.1:9", key_command=("no-such-program",)))
    assert reason == "the key_command of box, no-such-program, failed (FileNotFoundError)"
    reason = died(client_of("http://127.0.0.1:9", key_command=("false",)))
    assert reason == "the key_command of box, false, failed (exit status 1)"


def test_neither_key_nor_chat_follow_to_another_address(
    connect: Callable[..., Client], server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", "secret")
    with fault_server() as other:
        address = f"{other.url}/v1/chat/completions"
        server.chat = lambda handler: handler.json({}, 307, Location=address)
        client = connect(key_env="BOX_KEY", headers={"X-Token": "secret"})
        message = why(client.answer(chat()))

    assert f"sends on to {address}" in message
    assert other.asked == []


def test_too_many_requests_waits_as_long_as_it_is_asked_to(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    answer = server.chat

    def busy(handler: Handler) -> None:
        server.chat = answer
        handler.json({"error": {"message": "slow down"}}, 429, Retry_After="1")

    server.chat = busy
    began = time.monotonic()
    assert text_of(connect().answer(chat())) == "one two"
    assert time.monotonic() - began >= 1
    assert len(server.chats()) == 2


def test_a_wait_that_is_too_long_is_said(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    server.chat = lambda handler: handler.json({"detail": "quota"}, 429, Retry_After="600")
    assert why(connect().answer(chat())) == (
        f"{server.url} asks to wait 10 minutes (HTTP 429: quota)"
    )
    assert len(server.chats()) == 1


@pytest.mark.parametrize(("status", "times"), [(500, 1), (503, 3), (400, 1)])
def test_what_may_pass_is_asked_again_before_the_first_token(
    connect: Callable[..., Client], server: FaultServer, status: int, times: int
) -> None:
    server.chat = lambda handler: handler.json({"error": {"message": "no"}}, status)
    assert why(connect().answer(chat())).endswith(f"(HTTP {status}): no")
    assert len(server.chats()) == times


def test_a_model_that_is_still_being_loaded_is_waited_for(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    answer, left = server.chat, [6]

    def loading(handler: Handler) -> None:
        left[0] -= 1
        if not left[0]:
            server.chat = answer
        handler.json({"error": {"message": "Loading model"}}, 503)

    server.chat = loading
    assert text_of(connect().answer(chat())) == "one two"


def test_a_model_it_does_not_have(server: FaultServer, connect: Callable[..., Client]) -> None:
    client = connect()
    assert why(client.answer(p.Load(target="x"))) == (
        f"{server.url} has no model named “x”; it has m"
    )
    server.chat = lambda handler: handler.json({"error": {"message": "gone"}}, 404)
    assert why(client.answer(chat())) == (f"{server.url} has no model named “m” (HTTP 404: gone)")
    server.models = {"data": [{"id": "m"}, {"id": "n"}]}
    assert "It has m, n: name one" in why(client.answer(p.Load(target="")))


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://u:secret@h", "http://h:99999"])
def test_what_is_no_address(url: str) -> None:
    from eaglechat.links.base import EngineStartError

    with pytest.raises(EngineStartError) as raised:
        HttpLink(ServerSettings(name="box", url=url)).start()
    assert "secret" not in str(raised.value)


def test_a_comparison_asks_the_model_without_a_draft(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    client = connect(plain_model="m-plain")
    assert client.link.hello is not None
    assert client.link.hello.can.plain
    client.answer(chat())
    client.answer(chat(speculation=p.Speculation(enabled=False, n_draft_max=0)))
    assert [one.body["model"] for one in server.chats()] == ["m", "m-plain"]


def test_without_such_a_model_there_is_no_comparison(connect: Callable[..., Client]) -> None:
    hello = connect().link.hello
    assert hello is not None
    assert not hello.can.plain
