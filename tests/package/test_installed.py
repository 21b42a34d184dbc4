"""What the README's start command installs from the sdist, and that it runs."""

from __future__ import annotations

import json
import shlex
import shutil
import tarfile
from pathlib import Path

import pytest

import eaglechat
from tests.environment import ROOT
from tests.package.conftest import Installed
from tests.terminal.tmux import REPLIED, Terminal

pytestmark = pytest.mark.slow

FILES = {
    path.relative_to(ROOT).as_posix()
    for folder in ("eaglechat", "themes")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


def test_the_sdist_holds_all_that_is_built_and_shown(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= FILES | {"pyproject.toml", "README.md", "LICENSE"}


def test_every_file_of_the_package_and_the_themes_is_installed(installed: Installed) -> None:
    names = installed.python(
        "from importlib.metadata import files\n"
        "for name in files('eaglechat'):\n"
        "    if '__pycache__' not in name.parts and name.parts[0] == 'eaglechat': print(name)"
    )
    themes = {name for name in FILES if name.startswith("themes/")}
    assert {*names.split()} == {f"eaglechat/{name}" for name in themes} | FILES - themes


def test_the_installed_command_says_its_version(installed: Installed) -> None:
    assert installed.run("--version").stdout.strip() == eaglechat.__version__


def test_the_built_in_pair_replies(installed: Installed) -> None:
    flags = ("--max-tokens", "12", "--temperature", "0", "--n-draft-max", "3", "--json")
    done = installed.run("run", *flags, "Say hello.")
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    assert reply["text"]
    assert reply["speculation"]["drafted"] > 0


def test_what_the_app_reads_comes_with_it(installed: Installed) -> None:
    found = installed.python(
        "import json, eaglechat; from pathlib import Path; from eaglechat import paths\n"
        "from eaglechat.engine.bench.prompts import builtin_prompts\n"
        "from eaglechat.hub import catalogue\n"
        "known, problems = catalogue.load()\n"
        "print(json.dumps({'home': eaglechat.__file__, 'pairs': len(known),\n"
        " 'problems': [str(problem) for problem in problems],\n"
        " 'themes': sorted(path.name for path in paths.builtin_themes_dir().iterdir()),\n"
        " 'prompts': len(builtin_prompts()),\n"
        " 'styles': len(list(Path(eaglechat.__file__).parent.rglob('*.tcss')))}))"
    )
    read = json.loads(found)
    assert Path(read["home"]).is_relative_to(installed.folder)
    assert (read["pairs"] > 10, read["problems"], read["prompts"]) == (True, [], 8)
    assert read["themes"] == sorted(path.name for path in (ROOT / "themes").iterdir())
    assert read["styles"] == sum(name.endswith(".tcss") for name in FILES)


@pytest.mark.terminal
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_app_starts_and_replies(installed: Installed, tmp_path: Path) -> None:
    # So small a model may not find an end by itself.
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text("[generation]\nmax_tokens = 40\n")
    there = f"cd {shlex.quote(str(installed.folder.parent))} && {installed.start}"
    command = ["env", "-u", "PYTHONPATH", "bash", "-c", there]
    env = {"EAGLECHAT_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    with Terminal(command, width=100, height=30, env=env) as terminal:
        terminal.wait_for("Ask something")
        terminal.type("Say hello.")
        terminal.keys("Enter")
        terminal.says(REPLIED)
        terminal.keys("C-q")
        terminal.wait_for("exit status 0", 20)
