"""Names of files and revisions that may become paths on any platform.

A repository's listing and an address come from elsewhere: neither may lead out of a folder, and a
cache that was filled on one system must work on another.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

REVISION = r"^[A-Za-z0-9_](?!.*(\.\.|//|/\.|\./))[A-Za-z0-9._/+-]*(?<![./])\Z"
"""A branch, a tag, a commit or refs/pr/1, as git allows them, without what a path would read as
something else."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\:]")
# Windows opens a device for these, whatever the ending.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\Z", re.I)


def is_safe_path(path: str) -> bool:
    """Whether a repository's path names a file inside its folder, on Windows too."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not _UNSAFE.search(path) and all(map(_is_safe_part, parts))


def is_revision(text: str) -> bool:
    return re.search(REVISION, text) is not None and is_safe_path(text)


def _is_safe_part(part: str) -> bool:
    """Not `..` nor the root, nor what Windows takes for a device or cuts short."""
    stem = part.partition(".")[0].rstrip(" ")
    return part[-1] not in ". /" and not _DEVICE.match(stem)
