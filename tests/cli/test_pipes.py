"""What a shell does to a command: a reader that has enough, and SIGINT in the background."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    template = tmp_path / "template"
    template.write_text("日本 {{ messages[0].content }}", encoding="utf-8")
    done = eaglechat(tmp_path, f"prompt --template {template}", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, "?? hi\n")


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
