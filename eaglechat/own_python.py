"""Starts a Python of this program's own, in a process of its own.

With `-m` or `-c`, Python looks for modules in the current folder first: in a stranger's repository,
its `queue.py` would run. This file, started by its path, runs a module without that folder.
"""

from __future__ import annotations

import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder that holds this package."""


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this program as `__main__`."""
    # What this Python was told to ignore, the other one ignores too.
    flags = {"-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    python = [sys.executable, *(flag for flag, is_set in flags.items() if is_set)]
    return [*python, os.path.abspath(__file__), module, *arguments]


def forget_current_folder() -> None:
    """Take the current folder off the path, unless it holds this package."""
    try:
        current = os.getcwd()
    except OSError:  # the folder was deleted
        current = ""
    sys.path[:] = [one for one in sys.path if one == _HOME or one not in ("", current)]


def _main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this file's folder, whose modules are part of a package
    forget_current_folder()
    if _HOME not in sys.path:
        sys.path.insert(0, _HOME)
    # Imported late, from a path without the current folder. Python itself has read `os` and `sys`.
    import runpy

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
