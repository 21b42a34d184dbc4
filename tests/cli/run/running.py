"""`eaglechat run` in a test: in this process or in one of its own, and what comes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglechat.links.base import Link
from eaglechat.settings.model import Settings
from tests.engine_client import engine_in_this_process

PROMPT = "the cat sat on the mat"
ASCII = {"PYTHONIOENCODING": "ascii"}


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on standard error, of a command that printed nothing."""
        assert self.out == ""
        assert "Traceback" not in self.err
        (line,) = [line for line in self.err.splitlines() if line.startswith("eaglechat: ")]
        return line.removeprefix("eaglechat: ")


Runner = Callable[..., Ended]


def in_this_process(_settings: Settings) -> Link:
    engine = engine_in_this_process()
    engine.start()
    return engine


def process(arguments: Sequence[str], home: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "EAGLECHAT_HOME": str(home), **environment},
        cwd=home,
        start_new_session=True,
    )


def command(files: tuple[Path, Path], *arguments: str) -> list[str]:
    pair = ["--target", str(files[0]), "--draft", str(files[1]), "--threads", "1"]
    return ["run", *pair, "--temperature", "0", *arguments, PROMPT]
