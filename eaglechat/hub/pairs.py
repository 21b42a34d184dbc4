"""Pairs of a target and a draft the user can choose: the built-in one, recent ones, local files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eaglechat.engine.gguf import GGUFHeader

BUILTIN_NAME = "smollm2-135m"


@dataclass(frozen=True)
class Pair:
    """A target and its draft by path; without a draft the target decodes plainly.

    `n_draft_max` is what the pair starts with, or None for the user's setting.
    """

    name: str
    target: Path
    draft: Path | None
    source: str
    """built-in, recent or files."""
    n_draft_max: int | None = None
    note: str = ""


@dataclass(frozen=True)
class PairStatus:
    """What a menu shows of a pair: its headers, and why it cannot run here, if it cannot."""

    pair: Pair
    target: GGUFHeader | None
    draft: GGUFHeader | None
    problem: str | None
