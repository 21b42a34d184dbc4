"""What models, servers and files say reaches a terminal as text, and a pipe as it is."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from eaglechat.cli.status import complain

HOSTILE = "a\x1b]0;pwned\x07b\x9b31m\u202ec"
PRINTS = f"from eaglechat.cli import doctor, main\ndoctor.run = lambda _: print({HOSTILE!r}) or 0\n"


def printed(*, on_terminal: bool) -> bytes:
    """What a command that prints something hostile leaves on its standard output."""
    command = [sys.executable, "-c", PRINTS + "main(['doctor'])"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    if not on_terminal:
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=theirs) as process:
        os.close(theirs)
        found = b""
        while chunk := _read(ours):
            found += chunk
        process.wait()
    os.close(ours)
    return found


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # its other end is closed
        return b""


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_terminal_gets_no_control_characters() -> None:
    found = printed(on_terminal=True).decode()
    assert found.strip() == "a␛]0;pwned␇b\ufffd31m\ufffdc"


def test_a_pipe_gets_what_was_written() -> None:
    assert printed(on_terminal=False).decode() == HOSTILE + "\n"


def test_a_complaint_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"the server says {HOSTILE}")
    assert capsys.readouterr().err == "eaglechat: the server says a␛]0;pwned␇b\ufffd31m\ufffdc\n"
