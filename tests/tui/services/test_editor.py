"""The user's own editor: its text comes back, and whatever goes wrong is said."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from eaglechat.tui.services.editor import EditorError, edited, editor_command

APPENDS = [sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(' more\\n')"]


def test_the_text_comes_back_as_it_was_left() -> None:
    assert edited(APPENDS, "some", "role.toml") == "some more"


def test_an_editor_is_found_with_its_flags() -> None:
    assert editor_command({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert editor_command({"EDITOR": shlex.join(["/my editors/vi", "-n"])})[0] == "/my editors/vi"
    with pytest.raises(EditorError) as error:
        editor_command({"EDITOR": '"'})
    assert '$EDITOR is ", which cannot be read: No closing quotation' in str(error.value)


def test_without_a_setting_the_first_editor_that_is_there_is_taken(tmp_path: Path) -> None:
    environment = {"EDITOR": " ", "PATH": str(tmp_path)}
    with pytest.raises(EditorError) as error:
        editor_command(environment)
    assert "nano, vim and vi were not found. Set $VISUAL or $EDITOR" in str(error.value)
    suffix = ".exe" if sys.platform == "win32" else ""
    for name in ("vi", "vim"):
        (tmp_path / f"{name}{suffix}").touch(0o755)
        [command] = editor_command(environment)
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
def test_an_editor_that_fails_is_said(command: list[str], why: str) -> None:
    with pytest.raises(EditorError) as error:
        edited(command, "some", "role.toml")
    assert why in str(error.value)
