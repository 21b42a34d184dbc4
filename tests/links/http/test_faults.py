"""Whatever goes wrong between here and a server: a sentence, and nothing that came is lost."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from eaglechat.links.http.client import DaemonExecutor
from eaglechat.wire import protocol as p
from eaglechat.wire.records import FinishReason, Origin
from tests.links.engines import chat
from tests.links.http.fault_server import (
    Ask,
    Connect,
    FaultServer,
    Handler,
    client_of,
    died,
    fault_server,
    why,
)
from tests.waiting import PATIENCE_S


def test_a_reply_of_any_server_is_its_text(connect: Connect) -> None:
    reply = connect().answer(chat())
    done = reply.last
    tokens = [token for round_ in reply.rounds for token in round_.tokens]

    assert reply.text == "one two"
    assert {(token.id, token.origin) for token in tokens} == {(None, Origin.UNKNOWN)}
    assert (done.end.tokens, done.end.finish_reason) == (2, FinishReason.STOP)
    # The context is known once the prompt is counted.
    assert [round_.n_past for round_ in reply.rounds] == [0, 0]
    assert done.end.n_past == 5 + 2
    assert (done.stats.tested, done.stats.drafted) == (0, 0)


def test_what_is_asked_is_what_every_such_server_understands(
    connect: Connect, server: FaultServer
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


@pytest.mark.parametrize("answers", [True, False], ids=["loading", "silent"])
def test_a_link_that_still_asks_what_answers_is_closed_at_once(
    server: FaultServer, *, answers: bool
) -> None:
    asked, closed = threading.Event(), threading.Event()

    def models(handler: Handler) -> None:
        asked.set()
        if answers:
            handler.json({"error": {"message": "Loading model"}}, 503)
        else:
            closed.wait(60)

    server.models = models
    client = client_of(server.url)
    before = set(threading.enumerate())
    client.link.start()
    assert asked.wait(PATIENCE_S)
    client.link.close(patience_s=30)
    assert not [one for one in set(threading.enumerate()) - before if one.name == "engine"]
    closed.set()


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


def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    certificate = _certificate(tmp_path)
    with fault_server(certificate) as server:
        reason = died(client_of(server.url))
        assert f"the certificate of {server.url} is not trusted" in reason
        assert "ca_file" in reason

        known = client_of(server.url, ca_file=str(certificate))
        known.ready()
        known.answer(p.Load(target=""))
        assert known.answer(chat()).text == "one two"
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


def test_a_server_that_goes_away_and_comes_back(connect: Connect, server: FaultServer) -> None:
    client, answer = connect(), server.chat

    def away(handler: Handler) -> None:
        handler.close_connection = True

    server.chat = away
    assert "broke" in why(client.answer(chat()))
    server.chat = answer
    assert client.answer(chat()).text == "one two"


# --- it answers slowly, or in pieces ---


@pytest.mark.parametrize("text", ["", "one"], ids=["before a token", "behind one"])
@pytest.mark.parametrize("how", ["cancel", "close"])
def test_an_end_from_here_closes_the_connection_at_once_and_keeps_what_came(
    connect: Connect, server: FaultServer, how: str, text: str
) -> None:
    def begin(handler: Handler) -> None:
        if text:
            handler.begin()
            handler.text(text)
        handler.wait_for_the_client()

    server.chat = begin
    client = connect()
    asked = client.ask(chat())
    client.until(lambda: asked.text == text and server.chats(), "the request and a token")
    if how == "cancel":
        client.link.send(p.Cancel(id=asked.id))
        client.end(asked)
        assert asked.last.end.finish_reason is FinishReason.CANCELLED
    else:
        client.link.close()
    assert asked.text == text
    assert server.closed.wait(PATIENCE_S)


def test_a_stall_in_mid_reply_ends_it(connect: Connect, server: FaultServer) -> None:
    def stall(handler: Handler) -> None:
        handler.begin()
        handler.text("one")
        handler.wait_for_the_client()

    server.chat = stall
    asked = connect(timeout=0.3).answer(chat())
    assert asked.text == "one"
    assert why(asked) == (f"{server.url} has sent nothing for 0.3 s; the text received is kept")


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_cut_in_mid_reply_keeps_what_came_and_is_not_repeated(
    answered: Ask, server: FaultServer, is_chunked: bool
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

    asked = answered(cut)
    assert asked.text == "one"
    assert why(asked).endswith("; the text received is kept")
    assert len(server.chats()) == 1


def test_an_event_without_an_end_does_not_fill_the_memory(answered: Ask) -> None:
    def flood(handler: Handler) -> None:
        handler.begin()
        for _ in range(64):
            handler.wfile.write(b"x" * 2**20)

    assert "is not understood" in why(answered(flood))


def test_what_nobody_has_thought_of_ends_the_request_and_no_more(
    connect: Connect,
) -> None:
    client = connect()
    half = (p.Message(role="user", content="half a character: \ud800"),)
    assert "UnicodeEncodeError" in why(client.answer(chat(messages=half)))
    assert client.answer(chat()).text == "one two"


def test_what_nobody_has_thought_of_before_the_first_request_is_said(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_client: object) -> NoReturn:
        raise KeyError("odd")

    monkeypatch.setattr("eaglechat.links.http.server.discover", broken)
    assert died(client_of(server.url)) == "asking the server failed (KeyError: 'odd')"


def test_a_lookup_that_nobody_waits_for_any_more_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[object] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    goes_on = threading.Event()
    lookups, others = DaemonExecutor(), set(threading.enumerate())
    lookups.submit(goes_on.wait).cancel()
    (thread,) = set(threading.enumerate()) - others
    goes_on.set()
    thread.join()
    assert said == []
