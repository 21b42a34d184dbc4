"""The user's own editor: its text comes back, and whatever goes wrong is said."""

from __future__ import annotations

import shlex
import sys

import pytest

from eaglechat.chat.writing.editor import EditorError, edited, editor_command

APPENDS = [sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(' more\\n')"]


def test_the_text_comes_back_as_it_was_left() -> None:
    assert edited(APPENDS, "some") == "some more"


def test_an_editor_is_found_with_its_flags() -> None:
    assert editor_command({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert editor_command({"EDITOR": shlex.join(["/my editors/vi", "-n"])})[0] == "/my editors/vi"
    for wrong in ({}, {"EDITOR": " "}, {"EDITOR": '"'}):
        with pytest.raises(EditorError, match=r"\$VISUAL or \$EDITOR"):
            editor_command(wrong)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["no-such-editor"], "no-such-editor could not be used: No such file"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "exited with status 3"),
        (
            [sys.executable, "-c", "import sys; open(sys.argv[1], 'wb').write(b'\\xff')"],
            "could not be used",
        ),
    ],
    ids=["missing", "failing", "not text"],
)
def test_an_editor_that_fails_is_said(command: list[str], why: str) -> None:
    with pytest.raises(EditorError, match=why):
        edited(command, "some")
