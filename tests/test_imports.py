"""What may import what, and what a start may cost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_no_module_of_the_command_line_brings_the_app_or_llama_cpp() -> None:
    """Late imports bring them: so this is no contract of import-linter, which counts those too."""
    done = python(
        "import importlib, pkgutil, sys, eaglechat.cli as package\n"
        "modules = pkgutil.walk_packages(package.__path__, package.__name__ + '.')\n"
        "names = [module.name for module in modules]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names), sorted({'textual', 'llama_cpp'} & sys.modules.keys()))"
    )

    assert done.returncode == 0, done.stderr
    count, found = done.stdout.split(" ", 1)
    assert int(count) > 3
    assert found.strip() == "[]"


NOT_FOR_THE_MENU = {
    "huggingface_hub", "httpx2", "hf_xet", "filelock", "tqdm", "yaml",
    "llama_cpp", "numpy", "gguf", "torch", "jinja2",
}  # fmt: skip
NOT_FOR_HELP = {
    *NOT_FOR_THE_MENU, "textual", "rich", "psutil", "eaglechat.hub", "eaglechat.links",
    "eaglechat.chat", "eaglechat.tui",
}  # fmt: skip


def test_the_menu_is_there_before_anything_of_the_hub_or_of_models_is_read() -> None:
    done = python(
        "import sys; from eaglechat import cli; app, _ = cli.parse([])\n"
        "import eaglechat.cli.loading, eaglechat.tui.app, eaglechat.tui.screens.menu.screen\n"
        f"print(sorted({NOT_FOR_THE_MENU!r} & sys.modules.keys()))"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_the_app_itself_never_brings_a_model_library() -> None:
    """The menu, a chat and the bench run in the UI process; models live in the engine's."""
    done = python(
        "import sys, eaglechat.cli.start\n"
        "import eaglechat.tui.app, eaglechat.tui.screens.menu.screen\n"
        "import eaglechat.tui.screens.chat.screen, eaglechat.tui.screens.compare\n"
        "print(sorted({'llama_cpp', 'numpy', 'gguf', 'torch', 'jinja2'} & sys.modules.keys()))"
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("argument", "never"),
    [
        ("--help", NOT_FOR_HELP),
        ("--version", NOT_FOR_HELP),
        ("rnu", NOT_FOR_HELP),
        ("run --help", {*NOT_FOR_THE_MENU, "textual"}),
        ("models --help", {"textual", "llama_cpp", "torch"}),
    ],
)
def test_help_imports_only_what_it_shows(argument: str, never: set[str]) -> None:
    done = python(
        "import sys; from eaglechat.cli import main\n"
        f"try: main({argument.split()!r})\n"
        "except SystemExit as end: print('ended', end.code)\n"
        f"print('imported', sorted({never!r} & sys.modules.keys()))"
    )

    assert done.returncode == 0, done.stderr
    assert re.search(r"ended [02]\nimported \[\]\n$", done.stdout)
