"""Addresses as people write them."""

from __future__ import annotations

from argparse import Namespace

import pytest

from eaglechat.cli.options import served_pair
from eaglechat.links.http.address import parse_address, same_server
from eaglechat.settings import Settings
from eaglechat.settings.servers import ServerSettings


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
    ("url", "is_here"),
    [("http://127.0.0.1", True), ("http://0.0.0.0:80", True), ("[::1]:80", True), ("box", False)],
)
def test_no_proxy_stands_before_this_machine(url: str, is_here: bool) -> None:
    assert parse_address(url).is_here is is_here
