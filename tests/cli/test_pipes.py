"""A reader that has enough ends a command without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", ["models", "doctor"])
def test_a_closed_pipe_is_no_traceback(tmp_path: Path, command: str) -> None:
    environment = {**os.environ, "EAGLECHAT_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "eaglechat", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read().decode()
    assert process.returncode == 1
    assert "Traceback" not in complaint
    assert "BrokenPipe" not in complaint
