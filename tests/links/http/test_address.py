"""Addresses as people write them."""

from __future__ import annotations

from argparse import Namespace

import pytest

from eaglechat.cli.pairs import served_pair
from eaglechat.links.http.address import parse_address, same_server
from eaglechat.settings.model import ServerSettings, Settings
from eaglechat.wire import protocol as p
from tests.links.engines import chat
from tests.links.http.fault_server import Handler, client_of, fault_server, why


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://box:8080", "box:8080/v1/", True),
        ("http://BOX/v1", "http://box/v1/chat/completions", True),
        ("http://[::1]:8080", "[::1]:8080/", True),
        ("http://box", "https://box", False),
        ("http://box", "http://box:8080", False),
        ("http://box", "http://box/api/v1", False),
        ("", "", True),
    ],
)
def test_an_address_is_the_same_however_it_is_written(one: str, other: str, same: bool) -> None:
    assert same_server(one, other) is same


def test_the_entry_of_an_address_is_found_though_it_is_written_otherwise() -> None:
    entry = ServerSettings(name="box", url="http://box:8080/", key_env="BOX_KEY")
    args = Namespace(server="box:8080/v1", model=None)
    pair = served_pair(args, Settings(server=(entry,)))
    assert pair is not None
    assert pair.server is entry


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("box", "/v1"),
        ("box/v1", "/v1"),
        ("box/v1/", "/v1"),
        ("box/v2", "/v2"),
        ("box/api/paas/v4", "/api/paas/v4"),
        ("box/api/v3/", "/api/v3"),
        ("box/v1beta/openai/", "/v1beta/openai"),
        ("box/v1beta2", "/v1beta2"),
        ("box/openai/v1", "/openai/v1"),
        ("box/openai", "/openai"),
        ("box/inference", "/inference/v1"),
        ("box/vllm", "/vllm/v1"),
        ("box/api/chat/completions", "/api"),
        ("box/chat/completions", ""),
        ("box/v1/models", "/v1"),
        ("box/v1/completions/", "/v1"),
        ("box/chat", "/chat/v1"),
    ],
)
def test_the_api_is_where_the_address_says(url: str, base: str) -> None:
    address = parse_address(url)
    assert address.api == f"http://box{base}"
    assert same_server(url, address.root)


def test_what_follows_the_call_follows_each_call() -> None:
    address = parse_address("https://x/openai/deployments/d/chat/completions?api-version=2024")
    assert address.call("models") == "https://x/openai/deployments/d/models?api-version=2024"


def test_an_api_at_the_root_is_named_by_its_call() -> None:
    def at_the_root(handler: Handler) -> None:
        if handler.path == "/api/chat/completions":
            handler.reply("one two")
        else:
            handler.json({"error": "Not Found"}, 404)

    with fault_server() as server:
        server.models, server.chat = at_the_root, at_the_root
        for call, is_there in (("", False), ("/chat/completions", True)):
            client = client_of(f"{server.url}/api{call}")
            client.ready()
            client.expect(p.Loaded, p.Load(target="m"))
            asked = client.answer(chat())
            client.link.close()
            assert is_there or "unless it names a version, or a call such as" in why(asked)
            assert asked.text == ("one two" if is_there else "")


@pytest.mark.parametrize(
    ("url", "is_here"),
    [("http://127.0.0.1", True), ("http://0.0.0.0:80", True), ("[::1]:80", True), ("box", False)],
)
def test_no_proxy_stands_before_this_machine(url: str, is_here: bool) -> None:
    assert parse_address(url).is_here is is_here
