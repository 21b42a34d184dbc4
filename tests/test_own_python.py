"""Started in a stranger's folder, the program runs nothing of it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from eaglechat import own_python
from tests.cli.run.running import command

PACKAGE = Path(own_python.__file__).parent
# As the installed script does it.
SCRIPT = "import sys\nfrom eaglechat.__main__ import main\nsys.exit(main())\n"


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """A folder with a module of every name that Python or an installed package has. Each leaves a
    mark and ends the program."""
    folder = tmp_path / "strangers"
    folder.mkdir()
    trap = f"open({str(folder / 'MARK')!r}, 'a').write(__name__ + ' ')\nraise SystemExit(3)\n"
    for name in {*sys.stdlib_module_names, *packages_distributions()}:
        if name != "__main__":
            (folder / f"{name}.py").write_text(trap)
    return folder


@pytest.mark.parametrize("name", ["run", "doctor"])
def test_nothing_of_the_current_folder_runs(
    strangers: Path, tiny_files: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    words = {
        "run": command(tiny_files, "--max-tokens", "3"),
        "doctor": ["doctor"],
    }
    script = tmp_path / "eaglechat-script"
    script.write_text(SCRIPT)
    home = {"EAGLECHAT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, str(script), *words[name]],
        env={**os.environ, **home},
        cwd=strangers,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (strangers / "MARK").exists(), (strangers / "MARK").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", ["", ".", f"{os.pathsep}somewhere"])
def test_a_python_of_our_own_has_no_current_folder_on_its_path(tmp_path: Path, path: str) -> None:
    """Whatever the environment puts there."""
    (tmp_path / "platform.py").write_text("raise SystemExit(3)")
    done = subprocess.run(
        own_python.command("platform"),
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert done.stdout.strip()


def test_this_is_the_only_way_to_start_a_python() -> None:
    """Elsewhere `sys.executable` may stand in a sentence, never in a command."""
    for file in PACKAGE.rglob("*.py"):
        if file.name == "own_python.py":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        said = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
        }
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"multiprocessing", "concurrent.futures.process"} & set(names), file
            is_python = isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable"
            assert not is_python or id(node) in said, f"{file}:{getattr(node, 'lineno', '')}"
            assert not (isinstance(node, ast.Name) and node.id == "ProcessPoolExecutor"), file
