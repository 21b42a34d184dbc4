"""The draft in the user's editor and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tui.driving import Driver

Drive = Callable[..., Driver]


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "editor.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write(' and more\\n')")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")


@pytest.mark.usefixtures("editor")
async def test_the_draft_is_edited(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        user.lend_terminal()
        await user.open_chat()
        await user.type("some")
        await user.command("chat.editor")
        await user.until(lambda: user.prompt.text == "some and more", "the text of the editor")
        assert user.prompt.has_focus


async def test_what_goes_wrong_is_said_and_the_draft_stays(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.type("some")
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.delenv("EDITOR", raising=False)
        with monkeypatch.context() as nothing_installed:
            nothing_installed.setenv("PATH", str(tmp_path))
            await user.command("chat.editor")
            await user.sees("No editor is set")
        monkeypatch.setenv("EDITOR", "no-such-editor")
        await user.command("chat.editor")
        await user.sees("There is no terminal")
        done = user.lend_terminal()
        await user.command("chat.editor")
        await user.sees("no-such-editor could not be used")
        assert done == ["given", "taken back"]
        assert user.prompt.text == "some"
