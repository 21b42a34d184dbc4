"""The wheel as people get it: built from the sdist, installed where there is no checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.environment import of_the_user

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and a home of its own."""

    folder: Path
    home: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._go([str(self.folder / "bin" / "eaglechat"), *arguments])

    def python(self, code: str) -> str:
        return self._go([str(self.folder / "bin" / "python"), "-c", code]).stdout

    def _go(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
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


def pip(folder: Path, *arguments: str) -> None:
    subprocess.run(
        [str(folder / "bin" / "python"), "-m", "pip", "--quiet", *arguments],
        env=clean_environment(),
        check=True,
    )


def environment(folder: Path) -> Path:
    """A virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], env=clean_environment(), check=True)
    return folder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of the checkout, and the wheel of the sdist."""
    folder = tmp_path_factory.mktemp("built")
    tools = environment(folder / "tools")
    pip(tools, "install", "hatchling")
    hatchling = [str(tools / "bin" / "hatchling"), "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(hatchling, cwd=ROOT, env=clean_environment(), check=True)
    (sdist,) = folder.glob("*.tar.gz")
    pip(tools, "wheel", "--no-cache-dir", "--no-deps", "--wheel-dir", str(folder), str(sdist))
    (wheel,) = folder.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own."""
    folder = environment(tmp_path_factory.mktemp("installed"))
    pip(folder, "install", f"{built.wheel}[demo]")
    return Installed(folder, tmp_path_factory.mktemp("home"))


@pytest.fixture
def unpacked(built: Built, tmp_path: Path) -> Path:
    """The sdist's files: what a clone holds."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.glob("eaglechat-*")
    return folder
