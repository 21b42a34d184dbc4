"""What may import what, and what a start may cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("package", "never"),
    [
        ("eaglechat.engine", {"textual", "huggingface_hub"}),
        ("eaglechat.hub", {"textual"}),
        ("eaglechat.cli", {"textual", "llama_cpp"}),
        ("eaglechat.chat", {"textual"}),
    ],
)
def test_importing_a_whole_package_does_not_bring(package: str, never: set[str]) -> None:
    done = python(
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module('{package}')\n"
        "modules = pkgutil.walk_packages(package.__path__, package.__name__ + '.')\n"
        "names = [module.name for module in modules]\n"
        "for name in names: importlib.import_module(name)\n"
        f"print(len(names), sorted({never!r} & sys.modules.keys()))"
    )

    assert done.returncode == 0, done.stderr
    count, found = done.stdout.split(" ", 1)
    assert int(count) > 3
    assert found.strip() == "[]"


def test_the_menu_is_there_before_anything_of_the_hub_is_read() -> None:
    done = python(
        "import sys; import eaglechat.tui.app, eaglechat.tui.screens.menu.screen\n"
        "print('huggingface_hub' in sys.modules)"
    )
    assert done.stdout.strip() == "False", done.stderr


def test_the_app_itself_never_brings_a_model_library() -> None:
    """The menu, a chat and the bench run in the UI process; models live in the engine's."""
    done = python(
        "import sys, eaglechat.cli.start\n"
        "import eaglechat.tui.app, eaglechat.tui.screens.menu.screen\n"
        "import eaglechat.tui.screens.chat.screen, eaglechat.tui.screens.bench\n"
        "print(sorted({'llama_cpp', 'numpy', 'gguf', 'torch', 'jinja2'} & sys.modules.keys()))"
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("argument", ["--help", "--version", "run --help"])
def test_help_imports_neither_the_terminal_nor_llama_cpp(argument: str) -> None:
    done = python(
        "import sys; from eaglechat.cli import main\n"
        f"try: main({argument.split()!r})\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print('imported', sorted({'textual', 'llama_cpp', 'numpy', 'huggingface_hub'}"
        " & sys.modules.keys()))"
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("imported []\n")
    assert len(done.stdout.splitlines()) > 1
