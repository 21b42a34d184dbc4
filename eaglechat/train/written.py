"""What runs in a folder wrote beside it: only that is replaced by the next run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from eaglechat.hub.local.fingerprint import sha256
from eaglechat.paths import write_atomically
from eaglechat.train.settings import TrainingError

_WRITTEN = "written.json"


def check(work: Path, files: Sequence[Path]) -> None:
    """Raises TrainingError for a file that is there and is not as a run in this folder wrote it."""
    known = _known(work)
    for file in files:
        if file.exists() and known.get(file.name) != _digest(file):
            raise TrainingError(
                f"{file} exists, and no run in {work} wrote it: move it, or choose another --output"
            )


def note(work: Path, file: Path) -> None:
    """Keep what this run wrote, so that the next one may replace it. Raises OSError."""
    known = {**_known(work), file.name: _digest(file)}
    write_atomically(work / _WRITTEN, msgspec.json.format(msgspec.json.encode(known)))


def _known(work: Path) -> dict[str, str]:
    """The digest of each file that runs in this folder wrote beside it, by its name."""
    try:
        return msgspec.json.decode((work / _WRITTEN).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _digest(file: Path) -> str:
    """Empty for what is no file."""
    return sha256(file) if file.is_file() else ""
