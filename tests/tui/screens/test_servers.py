"""Servers in the app: in the menu, in a chat, and when the cable is pulled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eaglechat.chat.history.reading import saved_chats
from eaglechat.settings import Settings
from eaglechat.settings.servers import ServerSettings
from tests.links.http.fault_server import FaultServer, Handler, fault_server
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server() as faults:
        yield faults


def settings_of(*urls: str) -> Settings:
    servers = [ServerSettings(name=f"box {n}", url=url) for n, url in enumerate(urls, 1)]
    return Settings(server=tuple(servers))


async def chosen(user: Driver, name: str) -> None:
    await user.press(*name)
    await user.press("enter")


async def test_the_menu_says_what_a_server_has_or_why_it_has_nothing(
    drive: Drive, server: FaultServer
) -> None:
    user = drive(settings=settings_of(server.url, "ftp://nowhere"))
    async with user:
        await user.sees("m · 2,048 tokens of context")
        await user.sees("“ftp://nowhere” is not the address of a server")


async def test_each_model_of_a_server_is_a_row(drive: Drive, server: FaultServer) -> None:
    server.models = {"data": [{"id": "small"}, {"id": "large"}]}
    user = drive(settings=settings_of(server.url))
    async with user:
        await user.sees("small")
        await user.sees("large")


async def test_a_chat_with_a_server_says_what_it_does_not_report(
    drive: Drive, server: FaultServer, tmp_path: Path
) -> None:
    user = drive(settings=settings_of(server.url), size=(120, 50))
    async with user:
        await user.sees("m · 2,048 tokens of context")
        await chosen(user, "box 1")
        await user.sees(f"Connected to {server.url}.")
        await user.ask("hello")
        await user.sees("one two")
        await user.sees("origins not reported by this server")
        await user.sees("Not reported by this server.")

        def cut(handler: Handler) -> None:
            handler.begin()
            handler.text("cut off")

        server.chat = cut
        await user.ask("and then?")
        await user.sees(f"{server.url} ended in mid-reply")
        server.chat = lambda handler: handler.reply("back again")
        await user.ask("and now?")
        await user.sees("back again")
    (saved,) = saved_chats(tmp_path / "chats")
    assert (saved.header.server, saved.header.target) == (server.url, "m")


async def test_a_server_that_is_away_can_be_tried_again(drive: Drive, server: FaultServer) -> None:
    models, server.models = server.models, "nothing of the kind"
    user = drive(settings=settings_of(server.url))
    async with user:
        await chosen(user, "box 1")
        await user.sees("is not understood")
        await user.sees("Check the server, and its entry in config.toml")
        server.models = models
        await user.click("#again")
        await user.sees(f"Connected to {server.url}.")
