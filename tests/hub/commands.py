"""Runs commands of eaglechat as processes of their own, against the loopback Hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_RUN = "import sys; from eaglechat.cli import main; sys.exit(main(sys.argv[1:]))"


class Commands:
    """A home of its own, and the Hub it asks."""

    def __init__(self, home: Path, endpoint: str) -> None:
        self.home = home
        self.cache = home / "hf" / "hub"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HOME": str(home),
            "HF_HOME": str(home / "hf"),
            "HF_ENDPOINT": endpoint,
            "EAGLECHAT_HOME": str(home / "eaglechat"),
            "PYTHONPATH": str(ROOT),
        }
        self.environment.pop("XDG_CACHE_HOME", None)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _RUN, *words],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)
