"""What is no Hub, or is one only in part, is one sentence, whatever it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import close_session

from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.downloads.explain import explain
from eaglechat.hub.errors import HubError

Answer = tuple[int, dict[str, str], bytes]
COMMIT, SHA = "a" * 40, "b" * 64
WHOLE: dict[str, Any] = {"id": "u/r", "sha": COMMIT, "siblings": [
    {"rfilename": "m.gguf", "size": 9, "lfs": {"sha256": SHA, "size": 9}},
]}  # fmt: skip


class Mirror:
    """Answers each request with `answer`."""

    def __init__(self) -> None:
        self.answer: Answer = (200, {}, b"")
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                status, headers, data = mirror.answer
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    made = Mirror()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def hub(mirror: Mirror, tmp_path: Path) -> Hub:
    endpoint = f"http://127.0.0.1:{mirror.server.server_port}"
    return Hub(endpoint, tmp_path, 2.0, 2.0, waits=())


def questions(hub: Hub) -> list[Callable[[], object]]:
    return [lambda: hub.repo("u/r"), lambda: hub.search("qwen"), lambda: hub.peek(FILE)]


def changed(**fields: Any) -> bytes:
    return json.dumps({**WHOLE, **fields}).encode()


def of_file(**fields: Any) -> bytes:
    return changed(siblings=[{**WHOLE["siblings"][0], **fields}])


@pytest.mark.parametrize(
    "data",
    [
        b"{}", b"[]", b"null", b"3", b'"u/r"', b"", b"<html>", b"\xff\xfe", b"[{}]", b"[[]]",
        changed(id=None), changed(sha=None), changed(sha="../.."), changed(sha="main"),
        changed(siblings={}), changed(siblings=[{}]), changed(siblings=[None]),
        changed(tags="gguf"), changed(tags=[1]), changed(cardData=[]), changed(downloads="many"),
        of_file(rfilename=3), of_file(size="9"), of_file(size=-1), of_file(lfs={"size": 9}),
        of_file(lfs={"sha256": "../../x"}), of_file(lfs=[SHA]),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_one_sentence(hub: Hub, mirror: Mirror, data: bytes) -> None:
    said = "did not come from a Hugging Face Hub: check HF_ENDPOINT"
    answers = [(hub.repo, data), (hub.search, b"[%s]" % (data or b"{}"))]
    for ask, body in answers if b'"id": "u/r"' not in data else answers[:1]:
        mirror.answer = (200, {"Content-Type": "application/json"}, body)
        with pytest.raises(HubError, match=said):
            ask("u/r")


@pytest.mark.parametrize(
    "card",
    [{"model-index": 3}, {"model-index": [{}]}, {"base_model": {"a": 1}}, {"license": ["mit"]},
     {"ignore_metadata_errors": 1}],
)  # fmt: skip
def test_a_card_that_somebody_wrote_otherwise_is_no_obstacle(
    hub: Hub, mirror: Mirror, card: dict[str, Any]
) -> None:
    mirror.answer = (200, {}, changed(cardData=card))
    assert hub.repo("u/r").paths == ["m.gguf"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Location": "http://127.0.0.1:1/x"}, {"Location": "ftp://x/y"}, {"Location": "//"},
        {"Location": ""},
        {"Location": "/api/models/u/r/revision/main"},
    ],
)  # fmt: skip
def test_a_redirect_to_nowhere_is_one_sentence(
    hub: Hub, mirror: Mirror, headers: dict[str, str]
) -> None:
    mirror.answer = (302, headers, b"")
    for ask in questions(hub):
        with pytest.raises(HubError, match=r"\.$"):
            ask()


def test_an_error_without_a_file_does_not_speak_of_writing() -> None:
    error = explain(OSError("Could not find a suitable TLS CA certificate bundle"), "u/r")
    assert str(error).startswith("u/r cannot be fetched: Could not find a suitable TLS CA")
    assert "None" not in str(error)


FILE = RemoteFile("u/r", "m.gguf", COMMIT, 9, SHA)
HEAD = {"X-Repo-Commit": COMMIT, "X-Linked-Etag": f'"{SHA}"', "X-Linked-Size": "9"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"X-Repo-Commit": ""}, {"X-Repo-Commit": "../x"}, {"X-Linked-Etag": '"../x"'},
        {"X-Linked-Size": "nine"}, {"X-Linked-Size": "-9"},
    ],
)  # fmt: skip
def test_a_file_of_which_it_is_not_said_what_it_is_is_not_fetched(
    hub: Hub, mirror: Mirror, wrong: dict[str, str]
) -> None:
    mirror.answer = (200, {**HEAD, **wrong}, b"")
    with pytest.raises(HubError, match="does not say what u/r/m"):
        hub.metadata("u/r", "m.gguf", COMMIT)


@pytest.mark.parametrize(
    "endpoint",
    [
        "hf-mirror.com",
        "http:",
        "http://",
        "https:///x",
        "ftp://x",
        "http://[",
        "http://x:y",
        "C:\\hub",
    ],
)
def test_an_address_of_no_hub_names_the_variable(tmp_path: Path, endpoint: str) -> None:
    hub = Hub(endpoint, tmp_path, 2.0, 2.0, waits=())
    for ask in questions(hub):
        with pytest.raises(HubError, match=r"HF_ENDPOINT is .*, which is no address of a Hub"):
            ask()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "gopher://x"),
        ("ALL_PROXY", "socks5://127.0.0.1:9"),
        ("SSL_CERT_FILE", "/no/such/file"),
    ],
)
def test_a_connection_that_cannot_be_made_names_the_variables(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    close_session()
    for ask in questions(hub):
        with pytest.raises(
            HubError, match="check ALL_PROXY, HTTPS_PROXY and SSL_CERT_FILE"
        ) as said:
            ask()
        assert "Errno" not in str(said.value)


def test_a_token_that_is_none_is_one_sentence(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_\u00fc")
    for ask in questions(hub):
        with pytest.raises(HubError, match="The token for the Hub is no token: log in with"):
            ask()
