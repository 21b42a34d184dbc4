"""The README's start command, as written, in a terminal."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import of_the_user
from tests.terminal.tmux import REPLIED, Terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.terminal,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

A_BUILD_OF_LLAMA_CPP_S = 1500.0


def test_the_start_command_leads_to_a_reply(unpacked: Path, tmp_path: Path) -> None:
    readme = (unpacked / "README.md").read_text(encoding="utf-8")
    marked = re.search(r"<!-- the start command -->\n+```\n(.*?)\n```", readme, re.DOTALL)
    assert marked is not None
    there = f"cd {shlex.quote(str(unpacked))} && {marked[1]}"
    # So small a model may not find an end by itself.
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "home" / "config" / "config.toml").write_text("[generation]\nmax_tokens = 40\n")
    # llama-cpp-python that was built for this Python is not built again.
    ask = [sys.executable, "-m", "pip", "cache", "dir"]
    cache = subprocess.run(ask, env=of_the_user(), capture_output=True, text=True, check=True)
    env = {
        "EAGLECHAT_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1",
        "PIP_CACHE_DIR": cache.stdout.strip(),
    }
    command = ["env", "-u", "PYTHONPATH", "bash", "-c", there]
    with Terminal(command, width=100, height=30, env=env) as terminal:
        terminal.wait_for("Ask something|exit status", A_BUILD_OF_LLAMA_CPP_S, 1.0)
        terminal.type("Say hello.")
        terminal.keys("Enter")
        terminal.says(REPLIED)
        terminal.keys("C-q")
        terminal.wait_for("exit status 0", 20)
