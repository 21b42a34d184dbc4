"""Where the terminal app does not start, and what it says then."""

from __future__ import annotations

import sys

import pytest

from eaglechat.cli import main
from eaglechat.cli.status import FAILED


@pytest.mark.parametrize(("is_terminal", "term"), [(False, "xterm-256color"), (True, "dumb")])
def test_without_a_real_terminal_one_sentence_points_to_run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
    term: str,
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert main([]) == FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "eaglechat run" in said.err
