"""What git ignores in a directory of a work tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MOST_BYTES = 2**20
"""Of a file of patterns; of a longer one, these are read."""

IsIgnored = Callable[[str, bool], bool]
"""Whether a name in the directory is ignored; the flag is whether it is a directory itself."""


def ignored_in(directory: Path) -> IsIgnored:
    """What the .gitignore files and .git/info/exclude say of a directory's entries. Outside of a
    work tree nothing is ignored. It may take long. Raises OSError and ValueError for a path that
    cannot be."""
    directory = directory.resolve()
    root = next((one for one in (directory, *directory.parents) if (one / ".git").exists()), None)
    if root is None:
        return lambda _name, _is_directory: False
    within = [directory, *directory.parents]
    folders = within[: within.index(root) + 1]
    # The nearest file has the last word.
    files = [(one, one / ".gitignore") for one in folders]
    files.append((root, root / ".git" / "info" / "exclude"))
    specs = [(directory.relative_to(one), spec) for one, file in files if (spec := _spec(file))]

    def is_ignored(name: str, is_directory: bool) -> bool:
        for below, spec in specs:
            said = spec.check_file(f"{(below / name).as_posix()}{'/' if is_directory else ''}")
            if said.include is not None:
                return said.include
        return False

    return is_ignored


def _spec(file: Path) -> GitIgnoreSpec | None:
    """The patterns of a file, without those that git could not read; None where there are none."""
    # Only who types a path in a work tree needs it.
    from pathspec import GitIgnoreSpec  # noqa: PLC0415
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415

    try:
        if not file.is_file():
            return None
        with file.open("rb") as content:
            text = content.read(_MOST_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return None
    patterns = []
    for line in text.splitlines():
        try:
            patterns.append(GitIgnoreSpecPattern(line))
        except (ValueError, re.error):
            continue
    return GitIgnoreSpec(patterns)
