"""What runs in a folder wrote beside it: only that is replaced by the next run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eaglechat.hub.local.fingerprint import sha256
from eaglechat.state_file import StateFile
from eaglechat.train.settings import TrainingError


def check(work: Path, files: Sequence[Path]) -> None:
    """Raises TrainingError for a file that is there and is not as a run in this folder wrote it."""
    known = _digests(work).read({})
    for file in files:
        if file.exists() and not (file.is_file() and known.get(file.name) == sha256(file)):
            raise TrainingError(
                f"{file} exists, and no run in {work} wrote it: move it, or choose another --output"
            )


def note(work: Path, file: Path) -> None:
    """Keep what this run wrote, so that the next one may replace it."""
    with _digests(work).changing({}) as known:
        known[file.name] = sha256(file)


def _digests(work: Path) -> StateFile[dict[str, str]]:
    """By the name of each file."""
    return StateFile("written.json", dict[str, str], work)
