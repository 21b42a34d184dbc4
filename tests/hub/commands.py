"""Runs commands of eaglechat with a home of their own, against the loopback Hub."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from huggingface_hub import constants

from eaglechat.cli import main
from tests.environment import variables_of

_RUN = "import sys; from eaglechat.cli import main; sys.exit(main(sys.argv[1:]))"


class Commands:
    """A home of its own, and the Hub it asks."""

    def __init__(self, home: Path, endpoint: str) -> None:
        self.home, self.endpoint = home, endpoint
        self.cache = home / "hf" / "hub"
        self.environment = {**os.environ, **variables_of(home), "HF_ENDPOINT": endpoint}
        del self.environment["HF_HUB_OFFLINE"]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Run a command in a process that a test can kill."""
        return subprocess.Popen(
            [sys.executable, "-c", _RUN, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, offline: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command in this process, off a terminal: starting one takes a second."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in [name for name in os.environ if name not in self.environment]:
                patch.delenv(name)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            # huggingface_hub reads its variables when it is imported.
            template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
            patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", self.endpoint + template)
            patch.setattr(constants, "ENDPOINT", self.endpoint)
            patch.setattr(constants, "HF_HUB_CACHE", str(self.cache))
            patch.setattr(constants, "HF_HUB_OFFLINE", offline)
            patch.setattr(sys, "stdin", io.StringIO())
            try:
                status = main(list(words))
            except SystemExit as ended:
                status = int(ended.code or 0)
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())
