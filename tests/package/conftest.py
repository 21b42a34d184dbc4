"""The program as people get it: what the sdist holds, and the README's start command there."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.environment import ROOT, of_the_user


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the program, and a home of its own."""

    folder: Path
    start: str
    """The last part of the start command, for the folder above the environment."""
    home: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._go("eaglechat", *arguments)

    def python(self, code: str) -> str:
        return self._go("python", "-c", code).stdout

    def _go(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            env={
                **clean_environment(),
                "EAGLECHAT_HOME": str(self.home),
                "HF_HUB_OFFLINE": "1",
            },
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )


def clean_environment() -> dict[str, str]:
    """The environment without what leads Python back to the checkout; with the caches of pip and
    what it may install."""
    return {name: value for name, value in of_the_user().items() if name != "PYTHONPATH"}


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    tools, python = str(folder / "tools"), [sys.executable, "-m"]
    install = [*python, "pip", "install", "--quiet", "--target", tools, "hatchling"]
    subprocess.run(install, env=clean_environment(), check=True)
    build = [*python, "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    env = {**clean_environment(), "PYTHONPATH": tools}
    subprocess.run(build, cwd=ROOT, env=env, check=True)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


@pytest.fixture(scope="session")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """By all parts of the README's start command but the last, which starts the program."""
    above = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(above)
    (clone,) = above.glob("eaglechat-*")
    readme = (clone / "README.md").read_text(encoding="utf-8")
    marked = re.search(r"<!-- the start command -->\n+```\n(.*?)\n```", readme, re.DOTALL)
    assert marked is not None
    install, start = marked[1].rsplit(" && ", 1)
    subprocess.run(["bash", "-c", install], cwd=clone, env=clean_environment(), check=True)
    return Installed(clone / ".venv", start, tmp_path_factory.mktemp("home"))
