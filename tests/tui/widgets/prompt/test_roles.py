"""Roles in the app: chosen, typed, written, and shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
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
        await user.command("chat.role", to=RolesScreen)
        await user.sees("Talks like one")
        await user.sees("temperature 9 must be")
        await user.type("pir", "enter", to=ChatScreen)
        await user.sees("role pirate")
        await user.ask("why?")
        request = user.engine.requests(protocol.Chat)[-1]
        assert request.messages[0].content == "Arr."


@pytest.mark.usefixtures("roles")
async def test_a_role_is_typed(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.type("/role pi")
        await user.sees("Talks like one")
        await user.press("enter")
        await user.sees("role pirate")
        await user.type("/role bad", "enter")
        await user.sees("must be")
        assert user.chat.session.role is not None
        await user.type("/role none", "enter")
        await user.until(lambda: user.chat.session.role is None, "no role")
        await user.until(lambda: "role pirate" not in user.text, "the title")


async def test_a_role_is_written(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys; assert sys.argv[1].endswith('terse.toml')\n"
        "open(sys.argv[1], 'a').write('temperature = 0.1\\n')"
    )
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    monkeypatch.delenv("VISUAL", raising=False)

    async with drive(size=(80, 24)) as user:
        user.lend_terminal()
        await user.open_chat()
        await user.type("/role terse", "enter")
        await user.on(RolesScreen)
        await user.sees("Enter writes it")
        await user.press("enter")
        await user.until(lambda: user.chat.session.controls.temperature == 0.1, "the role")
        await user.sees("· role terse")
        assert (tmp_path / "roles" / "terse.toml").is_file()
        await user.type("/role ../x", "enter")
        await user.on(RolesScreen)
        await user.press("enter")
        await user.sees("cannot be the name of a role")


async def test_an_editor_that_is_left_without_a_change_writes_no_role(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)

    async with drive(size=(80, 24)) as user:
        user.lend_terminal()
        await user.open_chat()
        await user.type("/role terse", "enter")
        await user.on(RolesScreen)
        await user.press("enter")
        await user.sees("Nothing was written")
        assert user.chat.session.role is None
        assert not (tmp_path / "roles" / "terse.toml").exists()
