"""The user's own editor: its text comes back, and whatever goes wrong is said."""

from __future__ import annotations

import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from eaglechat.tui.services.desktop import editor_command, in_editor

APPENDS = [sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(' more\\n')"]


class Terminal:
    """An app as far as an editor needs one."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def suspend(self) -> AbstractContextManager[None]:
        return nullcontext()

    def notify(self, message: str, severity: str) -> None:
        self.said.append(message)


def test_the_text_comes_back_as_it_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", shlex.join(APPENDS))
    assert in_editor(Terminal(), "some", "role.toml") == "some more"  # type: ignore[arg-type]


def test_an_editor_is_found_with_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", shlex.join(["/my editors/vi", "-n"]))
    monkeypatch.setenv("VISUAL", "code --wait")
    assert editor_command() == ["code", "--wait"]
    monkeypatch.delenv("VISUAL")
    assert editor_command() == ["/my editors/vi", "-n"]
    monkeypatch.setenv("EDITOR", '"')
    with pytest.raises(ValueError, match='EDITOR is ", which cannot be read: No closing quotation'):
        editor_command()


def test_without_a_setting_the_first_editor_that_is_there_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", " ")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="nano, vim and vi were not found"):
        editor_command()
    suffix = ".exe" if sys.platform == "win32" else ""
    for name in ("vi", "vim"):
        (tmp_path / f"{name}{suffix}").touch(0o755)
        [command] = editor_command()
        assert Path(command).stem.casefold() == name


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["no-such-editor"], "no-such-editor could not be used: No such file"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "exited with status 3"),
        (
            [sys.executable, "-c", "import sys; open(sys.argv[1], 'wb').write(b'\\xff')"],
            "saved what is not text in UTF-8",
        ),
    ],
    ids=["missing", "failing", "not text"],
)
def test_an_editor_that_fails_is_said(
    command: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setenv("VISUAL", shlex.join(command))
    assert in_editor(terminal, "some", "role.toml") is None  # type: ignore[arg-type]
    [said] = terminal.said
    assert why in said
