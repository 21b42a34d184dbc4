"""The blocks of the documentation work as they stand: files are read, commands run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.chat.writing.roles import Role, read_role
from eaglechat.hub import catalogue
from eaglechat.settings.config_file import load
from eaglechat.tui.commands.keys import read_keymap
from tests.chat.headless import Headless
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = re.compile(r"(?:\.venv/bin/)?eaglechat (?:run|prompt|chats|export|doctor|engine)\b|\(cat ")
ELSEWHERE = re.compile(r"--server|qwen3")
"""What takes a server, or a pair that is not here."""
UNTIL_ANSWERED = f"""#!/bin/sh
for _ in $(seq {20 * int(PATIENCE_S)}); do
    grep -q finish_reason printed && exit
    {shutil.which("sleep")} 0.05
done
"""
"""What `sleep` does in a line of a page, however fast the machine is."""


def blocks(kind: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.M):
            if found == kind:
                yield page, block


def lines_to_run() -> Iterator[str]:
    for _, block in blocks(""):
        for line in block.splitlines():
            if RUN.match(line) and not ELSEWHERE.search(line):
                yield line


@pytest.mark.parametrize(
    ("page", "block"), blocks("toml"), ids=lambda one: one.name if isinstance(one, Path) else ""
)
def test_every_configuration_is_read(page: Path, block: str, tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_text(block, encoding="utf-8")
    if page.name == "hub.md":
        assert catalogue.read(file)[1] == []
    elif page.name == "chatting.md":
        assert isinstance(read_role(file), Role)
    elif not block.startswith("name"):  # A theme: test_docs reads it.
        settings, problems = load(file)
        assert problems == []
        assert read_keymap(settings.keys, file)[1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_is_named_is_there(page: Path) -> None:
    for name in re.findall(r"python -m (tests\.[\w.]+)", page.read_text(encoding="utf-8")):
        assert importlib.util.find_spec(name) is not None, name


@pytest.fixture
def shell(
    tmp_path: Path,
    home: Path,
    loaded_before: None,
    real_files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A directory with the files that the pages name; what is written there is a few tokens."""
    own, programs = home / "eaglechat", tmp_path / ".venv" / "bin"
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    programs.mkdir(parents=True)
    program = programs / "eaglechat"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m eaglechat "$@"\n')
    sleep = programs / "sleep"
    sleep.write_text(UNTIL_ANSWERED)
    for one in (program, sleep):
        one.chmod(one.stat().st_mode | stat.S_IXUSR)
    chat = Headless(own / "data")
    chat.ask("What is a steam engine?")
    chat.leave()
    config = own / "config" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    # llama.cpp's threads spin: one is the fastest beside other tests.
    config.write_text("[generation]\nmax_tokens = 4\n[engine]\nn_ctx = 512\nn_threads = 1\n")
    (tmp_path / "model.gguf").symlink_to(real_files[0])
    (tmp_path / "new.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "Hi"}]')
    (tmp_path / "raw.txt").write_text("Hello")
    shown = [block for page, block in blocks("json") if page.name == "protocol.md"]
    requests = "".join(one for one in shown if '"type":"load"' in one or '"type":"chat"' in one)
    for file in real_files:
        requests = requests.replace(f"/models/{file.name}", str(file))
    (tmp_path / "requests").write_text(requests)
    return tmp_path


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("line", lines_to_run())
def test_every_command_runs_as_it_stands(line: str, shell: Path) -> None:
    with (shell / "printed").open("w+b") as printed:
        ran = subprocess.run(
            line, shell=True, cwd=shell, stdout=printed, stderr=subprocess.PIPE, check=False
        )
        assert ran.returncode == 0, ran.stderr.decode()
        assert printed.seek(0, os.SEEK_END) > 0 or " -o " in line
        assert b"finish_reason" in (shell / "printed").read_bytes() or "sleep" not in line
