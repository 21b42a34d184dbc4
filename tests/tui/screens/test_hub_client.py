"""The screens on the real client against the loopback Hub: search, install, library, names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from textual.widgets import Input, OptionList

from eaglechat.hub import catalogue
from eaglechat.hub.desk import HubDesk
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.local.pair_library import NotInstalledError, PairLibrary
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.hub.downloads import DownloadsScreen
from eaglechat.tui.screens.hub.library import LibraryScreen
from eaglechat.tui.screens.hub.plan import PlanScreen
from eaglechat.tui.screens.hub.search import DraftsScreen, SearchScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.wire import protocol
from tests import ggufs
from tests.hub.fakehub import FakeHub, Seen, slowly
from tests.tui.driving import Driver
from tests.tui.textual_private import Gate

Drive = Callable[..., Driver]

NOWHERE = "http://127.0.0.1:9"
"""Nobody listens there."""

CATALOGUE = """
[[pair]]
name = "small"
target = { repo = "org/small-GGUF", file = "small-Q8_0.gguf" }
draft = { repo = "lab/small-eagle3-GGUF", file = "small-eagle3.gguf" }
"""


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub() as server:
        card = {"base_models": ("org/small",), "downloads": 1234}
        server.add("org/small-GGUF", {"small-Q8_0.gguf": big(ggufs.target())}, **card)
        server.add("lab/small-eagle3-GGUF", {"small-eagle3.gguf": ggufs.draft()})
        yield server


def big(header: bytes) -> bytes:
    """As large as a download that can be watched."""
    return header + bytes(2_000_000)


@pytest.fixture
def desk(fake: FakeHub, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubDesk:
    cache = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # The shipped pairs are not on this Hub.
    monkeypatch.setattr(catalogue, "SHIPPED", tmp_path / "nothing-shipped.toml")
    config = home / "eaglechat" / "config"
    config.mkdir(parents=True)
    (config / "catalogue.toml").write_text(CATALOGUE)
    return HubDesk(lambda: Hub(fake.endpoint, cache, waits=(0.01,)))


async def install_small(user: Driver) -> None:
    await user.sees_row("small", "a draft ")
    await user.choose("entry:small", to=PlanScreen)
    await user.sees("Memory:")
    await user.press("enter")


async def test_a_pair_is_downloaded_paused_resumed_and_loaded(
    drive: Drive, desk: HubDesk, fake: FakeHub, tmp_path: Path
) -> None:
    library = PairLibrary(tmp_path / "state")
    with pytest.raises(NotInstalledError, match="eaglechat pull small"):
        library.find("small")
    slow, paused = slowly(200_000), threading.Event()

    def held(seen: Seen, offset: int) -> None:
        slow(seen, offset)
        if offset > 1_000_000:
            paused.wait()

    fake.pace = held
    async with drive(size=(80, 24), desk=desk, pairs=library) as user:
        await install_small(user)
        await user.on(DownloadsScreen)
        await user.until(lambda: "kB/s" in user.text, "a speed")
        await user.press("space")
        await user.sees("paused · Space resumes")
        fake.pace = lambda seen, offset: None
        paused.set()
        await user.press("space")
        # Where its download was watched, it is loaded at once.
        await user.on(ChatScreen)
        load = user.engine.requests(protocol.Load)[-1]
        found = library.find("small")
        assert found is not None
        assert (load.target, load.draft) == (str(found.target), str(found.draft))
        await user.press("ctrl+o")
        await user.sees("● small ")
        assert [pair.name for pair in library.pairs()] == ["smollm2-135m", "small"]


async def test_a_pair_found_by_search_is_judged_and_stays_in_the_catalogue(
    drive: Drive, desk: HubDesk, fake: FakeHub
) -> None:
    fake.add("lab/other-eagle3-GGUF", {"other.gguf": ggufs.draft(hidden=16)})
    fake.repos["lab/other-eagle3-GGUF"].base_models = ("org/small",)
    fake.add("lab/tuned-eagle3-GGUF", {"tuned-eagle3.gguf": ggufs.draft()})
    fake.repos["lab/tuned-eagle3-GGUF"].base_models = ("org/small", "org/small-chat")
    async with drive(size=(120, 40), desk=desk) as user:
        await user.on(MenuScreen)
        await user.command("menu.search", to=SearchScreen)
        await user.type("small")
        await user.sees("org/small-GGUF  1,234 downloads")
        await user.press("enter")
        await user.sees("small-Q8_0 suits this machine.")
        await user.sees("small-Q8_0    2.0 MB  fits")
        await user.press("enter")
        await user.sees("● lab/small-eagle3-GGUF")
        await user.sees("✗ lab/other-eagle3-GGUF")
        await user.sees("● n-grams")
        await user.sees("○ A draft trained for it")
        await user.type("other", "enter")
        await user.sees("cannot be taken: the draft was made for")
        assert isinstance(user.app.screen, DraftsScreen)
        await user.press("escape")
        fake.seen.clear()
        await user.type("tuned", "enter", to=PlanScreen)
        await user.sees("Memory:")
        asked = [seen.path for seen in fake.seen if "/revision/" in seen.path]
        assert len(asked) == len({*asked}) == 2
        await user.press("enter", to=ChatScreen)
        names = [pair.name for pair in desk.catalogue()[0]]
        assert names == ["small", "small-q8_0-lab"]


async def test_a_draft_is_found_for_a_model_here_and_loaded_as_soon_as_it_is(
    drive: Drive, desk: HubDesk, fake: FakeHub, home: Path
) -> None:
    own = home / ".lmstudio" / "models" / "me" / "mine" / "mine-Q8_0.gguf"
    own.parent.mkdir(parents=True)
    own.write_bytes(ggufs.target())
    fake.add("lab/mine-eagle3-GGUF", {"mine-eagle3.gguf": ggufs.draft()})
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("small", "a draft ")
        await user.command("menu.library")
        await user.sees("mine-Q8_0.gguf")
        await user.type("mine")
        await user.command("menu.drafts")
        await user.sees("● lab/mine-eagle3-GGUF")
        await user.press("enter", to=PlanScreen)
        await user.sees(", on this machine")
        await user.sees("Memory:")
        await user.press("enter", to=ChatScreen)
        load = user.engine.requests(protocol.Load)[-1]
        assert load.target == str(own)
        assert load.draft is not None
        assert load.draft.endswith("mine-eagle3.gguf")


async def test_what_is_here_is_listed_while_the_hub_does_not_answer(
    drive: Drive, desk: HubDesk, fake: FakeHub, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gate, "is_a_server", True)
    library = PairLibrary(models)
    library.remember(pair_of_files(models / "target.gguf", None))
    fake.fail(server="hub", hang=True, times=99)
    async with drive(size=(80, 24), desk=desk, pairs=library) as user:
        await user.sees_row("target", "no draft")
        await user.press("down")
        await user.command("menu.drafts")
        await user.sees("● n-grams")
        await user.sees("Searching the Hub for")
        await user.press("escape", to=MenuScreen)
        await user.command("menu.drafts")
        await user.sees("● n-grams")
        await user.type("n-grams", "enter", to=ChatScreen)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_the_ways_to_draft_are_as_wide_as_their_list(
    drive: Drive, desk: HubDesk, models: Path, size: tuple[int, int]
) -> None:
    library = PairLibrary(models)
    library.remember(pair_of_files(models / "target.gguf", None))
    async with drive(size=size, desk=desk, pairs=library) as user:
        await user.sees_row("target", "no draft")
        await user.type("target")
        await user.command("menu.drafts", to=DraftsScreen)
        found = user.app.screen.query_one("#list", OptionList)
        await user.until(lambda: found.option_count and not found.loading, "what drafts")
        longest = max(len(line) for row in found.options for line in row.prompt.plain.split("\n"))
        assert longest > found.size.width // 2
        assert any(row.prompt.plain.startswith("○ A draft trained for it") for row in found.options)


async def test_a_search_that_finds_nothing_or_fails_says_so(
    drive: Drive, desk: HubDesk, fake: FakeHub
) -> None:
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("small", "a draft ")
        await user.command("menu.search")
        await user.type("nothing-like-it")
        await user.sees("The Hub has no GGUF and no draft by this name.")
        user.app.screen.query_one("#filter", Input).value = "hf.co/org/small-GGUF"
        await user.press("enter")
        await user.sees("Which quantisation of org/small-GGUF?")
        await user.press("escape", to=SearchScreen)
        fake.fail(status=403, server="hub", times=99)
        user.app.screen.query_one("#filter", Input).value = "small"
        await user.sees("The Hub refuses")
        await user.press("escape", "escape", to=MenuScreen)


async def test_the_library_pairs_up_deletes_and_says_what_that_frees(
    drive: Drive, desk: HubDesk, tmp_path: Path
) -> None:
    async with drive(size=(80, 24), desk=desk) as user:
        await install_small(user)
        await user.on(ChatScreen)
        # It takes keys once it is drawn.
        await user.sees("^O menu")
        await user.press("ctrl+o", to=MenuScreen)
        await user.command("menu.library", to=LibraryScreen)
        await user.sees("org/small-GGUF/small-Q8_0.gguf")
        await user.type("target", "enter")
        await user.on(DraftsScreen)
        await user.sees("What can make small-Q8_0 faster.")
        await user.sees("n-grams")
        await user.press("escape", to=LibraryScreen)
        await user.press("escape")
        await user.sees("2 models")
        await user.type("small-q8")
        await user.press("ctrl+d", to=Ask)
        await user.sees("This frees 2.0 MB.")
        await user.sees("Pairs that need it: small.")
        await user.press("enter", to=LibraryScreen)
        assert list((tmp_path / "cache").rglob("small-Q8_0.gguf"))
        await user.press("ctrl+d", to=Ask)
        await user.press("y")
        await user.sees("2.0 MB freed")
        assert not list((tmp_path / "cache").rglob("small-Q8_0.gguf"))
        await user.press("escape", "escape")
        await user.sees("↓ small ")


async def test_a_gated_repository_says_where_to_accept_and_how_to_log_in(
    drive: Drive, desk: HubDesk, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.repos["org/small-GGUF"].gated = True
    async with drive(size=(120, 40), desk=desk) as user:
        await user.sees_row("small", "a draft ")
        await user.choose("entry:small")
        await user.sees("org/small-GGUF is gated")
        await user.press("enter")
        # Where the download would begin, and not after the draft has come.
        await user.sees("and try again.")
        await user.sees(f"{fake.endpoint}/org/small-GGUF")
        monkeypatch.setenv("HF_TOKEN", "hf_good")
        await user.sees("Enter tries again")
        await user.press("enter", to=ChatScreen)


async def test_words_that_no_pair_has_are_searched_for_on_the_hub(
    drive: Drive, desk: HubDesk
) -> None:
    async with drive(size=(80, 24), desk=desk) as user:
        await user.sees_row("small", "a draft ")
        await user.type("zzzz")
        await user.sees("Nothing here matches “zzzz”.")
        await user.press("enter", to=SearchScreen)
        assert user.app.screen.query_one("#filter", Input).value == "zzzz"
        await user.sees("The Hub has no GGUF and no draft by this name.")


async def test_clearing_the_words_ends_the_search_for_them(
    drive: Drive, desk: HubDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Gate()
    monkeypatch.setattr(Hub, "search", lambda *_, **__: [] if answer.wait() else None)
    async with drive(size=(80, 24), desk=desk) as user:
        await user.command("menu.search", to=SearchScreen)
        await user.type("small")
        await user.sees("Searching the Hub for “small”…")
        await user.press("escape")
        await user.sees("Type the name of a model to chat with, or of a draft.")
        assert not user.app.screen.query_one("#list").loading
        answer.set()
