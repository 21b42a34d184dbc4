"""A server on loopback that does whatever goes wrong, by the path of its address, and clients."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from eaglechat.links.http.server import server_link
from eaglechat.settings.model import ServerSettings
from eaglechat.wire import protocol as p
from tests.engine_client import Asked, Client

MODELS = {"data": [{"id": "m", "owned_by": "nobody", "max_model_len": 2048}]}


@dataclass
class Noted:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any = None


@dataclass
class FaultServer:
    """What it answers is what `chat` writes; `models` is the list of its models, or writes it."""

    chat: Callable[[Handler], None] = lambda handler: handler.reply("one", " two")
    models: Any = field(default_factory=lambda: MODELS)
    others: dict[str, Any] = field(default_factory=dict)
    """By path the JSON, or what writes an answer to a request."""
    key: str = ""
    asked: list[Noted] = field(default_factory=list)
    url: str = ""
    closed: threading.Event = field(default_factory=threading.Event)
    """Set when a client closed a connection on which a reply was being written."""

    def chats(self) -> list[Noted]:
        return [one for one in self.asked if one.path.endswith("/chat/completions")]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults: FaultServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._note()
        if self.path == "/v1/models":
            self._answer(self.faults.models)
        elif self.path in self.faults.others:
            self._answer(self.faults.others[self.path])
        else:
            self.json({"error": {"message": "no such page"}}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._note(body)
        if self.faults.key and self.headers.get("Authorization") != f"Bearer {self.faults.key}":
            given = self.headers.get("Authorization")
            self.json({"error": {"message": f"wrong key: {given}"}}, 401)
        elif self.path in self.faults.others:
            self._answer(self.faults.others[self.path])
        else:
            self.faults.chat(self)

    def _answer(self, what: Any) -> None:
        if callable(what):
            what(self)
        else:
            self.json(what)

    def _note(self, body: Any = None) -> None:
        self.faults.asked.append(Noted(self.command, self.path, dict(self.headers), body))

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def text(self, text: str) -> None:
        self.event({"choices": [{"delta": {"content": text}}]})

    def reply(self, *texts: str, usage: Any = None, **more: Any) -> None:
        """A whole reply; `usage` is added to its usage, `more` to the event that has it."""
        self.begin()
        for text in texts:
            self.text(text)
        self.event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 5, "completion_tokens": len(texts), **(usage or {})}
        self.event({"choices": [], "usage": usage, **more})
        self.event("[DONE]")

    def wait_for_the_client(self) -> None:
        """Until it closes the connection."""
        self.connection.settimeout(30)
        if not self.rfile.read(1):
            self.faults.closed.set()


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


def says(value: Any, status: int = 200, **headers: str) -> Any:
    """Writes an answer of JSON."""
    return lambda handler: handler.json(value, status, **headers)


def streaming(*steps: tuple[str, int], ends: Sequence[dict[str, Any]] = ()) -> Any:
    """Writes a reply of texts, each of so many tokens, which the server counts as it goes; `ends`
    is added to the events after them."""

    def stream(handler: Handler) -> None:
        handler.begin()
        done = 0
        for text, count in steps:
            done += count
            usage = {"prompt_tokens": 7, "completion_tokens": done}
            handler.event({"choices": [{"delta": {"content": text}}], "usage": usage})
        for end in ends:
            handler.event({"choices": [], "usage": usage} | end)
        handler.event("[DONE]")

    return stream


def models_of(kind: str) -> dict[str, Any]:
    """The list of models of a kind of server, with one."""
    return {"data": [{"id": "m", "owned_by": kind, "max_model_len": 8192}]}


@contextmanager
def fault_server(certificate: Path | None = None) -> Iterator[FaultServer]:
    """A server that replies until it is told to do worse; over TLS with a certificate and its key
    in one file."""
    faults = FaultServer()
    handler = type("BoundHandler", (Handler,), {"faults": faults})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    faults.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield faults
    finally:
        server.shutdown()
        server.server_close()


# --- a client of it ---

Connect = Callable[..., Client]
"""The fixture `connect`: connects a client, with settings of the server."""
Ask = Callable[..., Asked]
"""The fixture `answered`: asks for a chat that the server answers like this."""


def client_of(url: str, **more: Any) -> Client:
    return Client(server_link(ServerSettings(name="box", url=url, **more)))


def why(asked: Asked) -> str:
    error = asked.last
    assert isinstance(error, p.Error), error
    return error.message


def died(client: Client) -> str:
    client.link.start()
    reason = client.death().why
    client.link.close()
    return reason
