"""What a shell and a terminal do to a command: pipes, closed streams, Ctrl+C, what is shown."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eaglechat.cli import main
from eaglechat.cli.loading import Interrupt
from eaglechat.cli.status import FAILED, complain
from tests import ggufs


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


INTERRUPT_AT = """
import os, runpy, signal, sys
class Hook:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Hook())
sys.argv[1:] = ["models"]
runpy.run_module("eaglechat", run_name="__main__")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent otherwise there")
@pytest.mark.parametrize(
    "module",
    ["eaglechat.cli", "eaglechat.hub.catalogue"],
)
def test_ctrl_c_while_the_program_is_read_is_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT_AT.format(module=module)],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_ctrl_c_ends_the_program_and_what_it_has_open(number: signal.Signals) -> None:
    """Not by force: bars are taken off the screen, an engine that does not listen is killed."""
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        os.kill(os.getpid(), number)
        assert interrupt.happened
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", ["models", "doctor"])
def test_a_closed_pipe_is_no_traceback(command: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "eaglechat", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read().decode()
    assert process.returncode == 1
    assert "Traceback" not in complaint
    assert "BrokenPipe" not in complaint


def eaglechat(home: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run in a shell, which can close streams."""
    return subprocess.run(
        ["sh", "-c", f"{sys.executable} -m eaglechat {command}"],
        env={**os.environ, "EAGLECHAT_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_closed_streams_are_empty_ones(tmp_path: Path) -> None:
    done = eaglechat(tmp_path, "chats --json >&-")
    assert (done.returncode, done.stderr) == (0, "")
    done = eaglechat(tmp_path, "run - <&-")
    assert (done.returncode, done.stderr) == (2, "eaglechat: the prompt is empty\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    done = eaglechat(tmp_path, "chats --json > /dev/full")
    said = "eaglechat: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_what_the_output_cannot_show_is_a_question_mark(tmp_path: Path) -> None:
    (tmp_path / "日本.gguf").write_bytes(ggufs.target())
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(f"[library]\nfolders = ['{tmp_path}']\n")
    done = eaglechat(tmp_path, "models", PYTHONIOENCODING="ascii")
    assert (done.returncode, "  ??  target" in done.stdout) == (0, True)


def test_a_background_job_of_a_script_can_be_interrupted() -> None:
    """A shell without job control starts it with SIGINT ignored."""
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from eaglechat.cli import doctor, main;"
        "doctor.run = lambda _: os.kill(os.getpid(), signal.SIGINT);"
        "sys.exit(main(['doctor']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


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
