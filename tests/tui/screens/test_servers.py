"""Servers in the app: in the menu, in a chat, and when the cable is pulled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eaglechat.settings.model import ServerSettings, Settings
from eaglechat.tui.screens.menu.servers import ask, pairs_of, served
from tests.chat.headless import saved_chats
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


def test_each_model_of_a_server_is_a_row_and_says_if_it_is_not_loaded(server: FaultServer) -> None:
    status = {"value": "unloaded", "args": []}
    big = {"id": "big", "owned_by": "llamacpp", "status": status}
    server.models = {"data": [{"id": "small"}, big]}
    server.others["/props"] = {"role": "router"}
    box = ServerSettings(name="box", url=server.url)
    news = ask(box)
    rows = [served(pair, news) for pair in pairs_of([box], {"box": news})]
    assert rows == ["small", "big · unloaded"]


async def test_a_chat_with_a_server_says_what_it_does_not_report(
    drive: Drive, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", "hidden-key")
    server.key = "hidden-key"
    box = ServerSettings(name="box 1", url=server.url, key_env="BOX_KEY")
    user = drive(settings=Settings(server=(box,)), size=(120, 50))
    async with user:
        await user.sees("m · 2,048 tokens of context")
        await chosen(user, "box 1")
        await user.sees(f"Connected to {server.url}.")
        await user.ask("hello")
        await user.sees("one two")
        await user.sees("Not reported by this server.")
        await user.sees("7 / 2,048")

        def cut(handler: Handler) -> None:
            handler.begin()
            handler.text("cut off")

        server.chat = cut
        await user.ask("and then?")
        await user.sees(f"{server.url} broke off during the reply")
        await user.sees("  not known")
        server.chat = lambda handler: handler.reply("back again")
        await user.ask("and now?")
        await user.sees("back again")
    (saved,) = saved_chats(tmp_path)
    assert (saved.header.server, saved.header.target) == (server.url, "m")
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in kept if b"hidden-key" in path.read_bytes()]


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((120, 50), "This reply: accepted 2 of 6 drafted"),
        ((80, 30), "tok/s   accepted 2 of 6 drafted tokens"),
    ],
    ids=["panel", "status line"],
)
async def test_the_counts_of_a_whole_reply_are_shown_at_its_end(
    drive: Drive, server: FaultServer, size: tuple[int, int], shown: str
) -> None:
    counts = {"draft_kind": "mtp", "draft_rounds": 2, "draft_n": 6, "draft_n_accepted": 2}
    server.chat = lambda handler: handler.reply("one", " two", " three", " four", timings=counts)
    async with drive(settings=settings_of(server.url), size=size) as user:
        await user.sees("m · 2,048 tokens of context")
        await chosen(user, "box 1")
        await user.sees(f"Connected to {server.url}.")
        await user.ask("hello")
        await user.sees(shown)
        await user.command("chat.view", "chat.view")
        await user.sees("origins not reported by this server")


async def test_a_server_that_is_away_can_be_tried_again(drive: Drive, server: FaultServer) -> None:
    models, server.models = server.models, "nothing of the kind"
    user = drive(settings=settings_of(server.url))
    async with user:
        await chosen(user, "box 1")
        await user.sees("is not understood")
        await user.sees("Check the server, and its entry in config.toml")
        server.models = models
        await user.press("enter")
        await user.sees(f"Connected to {server.url}.")
