"""What is in the wheel, and that it runs where there is no checkout; test_start.py has the app."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

import eaglechat
from tests.package.conftest import ROOT, Built, Installed

pytestmark = pytest.mark.slow

FILES = {
    path.relative_to(ROOT).as_posix()
    for folder in ("eaglechat", "themes")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


def test_the_sdist_holds_all_that_is_built_and_shown(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= FILES | {"pyproject.toml", "README.md", "LICENSE"}


def test_the_wheel_holds_every_file_of_the_package_and_the_themes(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {f"eaglechat/{name}" if name.startswith("themes/") else name for name in FILES}


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
