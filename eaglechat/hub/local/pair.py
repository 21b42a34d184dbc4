"""A target and its draft, by path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eaglechat.wire.protocol import Auto


@dataclass(frozen=True)
class Pair:
    """A target and its draft by path; without a draft the target decodes plainly.

    `n_draft_max` is what the user keeps for this pair, or None for the setting of all pairs.
    """

    name: str
    target: Path
    draft: Path | None
    source: str
    """built-in, recent, catalogue or files."""
    n_draft_max: int | Auto | None = None
    note: str = ""
