"""Roles in the app: chosen, typed, written, and shown."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.roles import RolesScreen
from eaglechat.wire import protocol
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    folder = tmp_path / "roles"
    folder.mkdir()
    (folder / "pirate.toml").write_text('system_prompt = "Arr."\ndescription = "Talks like one"')
    (folder / "bad.toml").write_text("temperature = 9")
    return folder


@pytest.mark.usefixtures("roles")
async def test_a_role_is_chosen_from_a_list(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.command("chat.role")
        await user.on(RolesScreen)
        await user.sees("Talks like one")
        await user.sees("temperature 9 must be")
        await user.type("pir")
        await user.press("enter")
        await user.on(ChatScreen)
        await user.sees("role pirate")
        await user.ask("why?")
        request = user.engine.requests(protocol.Chat)[-1]
        assert isinstance(request, protocol.Chat)
        assert request.messages[0].content == "Arr."


@pytest.mark.usefixtures("roles")
async def test_a_role_is_typed(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.type("/role pi")
        await user.sees("Talks like one")
        await user.press("enter")
        await user.sees("role pirate")
        user.prompt.load_text("/role bad")
        user.prompt.action_send()
        await user.sees("must be")
        assert user.chat.session.role is not None
        user.prompt.load_text("/role none")
        user.prompt.action_send()
        await user.until(lambda: user.chat.session.role is None, "no role")
        await user.until(lambda: "role pirate" not in user.text, "the title")


async def test_a_role_is_written(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "editor.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write('temperature = 0.1\\n')")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    monkeypatch.delenv("VISUAL", raising=False)

    @contextlib.contextmanager
    def suspend() -> Iterator[None]:
        yield

    async with drive(size=(80, 24)) as user:
        user.app.suspend = suspend  # type: ignore[method-assign]
        await user.open_chat()
        user.prompt.load_text("/role terse")
        user.prompt.action_send()
        await user.on(RolesScreen)
        await user.press("enter")
        await user.until(lambda: user.chat.controls.temperature == 0.1, "the role")
        await user.sees("· role terse")
        assert (tmp_path / "roles" / "terse.toml").is_file()
        user.prompt.load_text("/role ../x")
        user.prompt.action_send()
        await user.on(RolesScreen)
        await user.press("enter")
        await user.sees("cannot be the name of a role")


async def test_an_editor_that_is_left_without_a_change_writes_no_role(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)

    @contextlib.contextmanager
    def suspend() -> Iterator[None]:
        yield

    async with drive(size=(80, 24)) as user:
        user.app.suspend = suspend  # type: ignore[method-assign]
        await user.open_chat()
        user.prompt.load_text("/role terse")
        user.prompt.action_send()
        await user.on(RolesScreen)
        await user.press("enter")
        await user.sees("Nothing was written")
        assert user.chat.session.role is None
        assert not (tmp_path / "roles" / "terse.toml").exists()
