"""The kinds of drafters that read hidden states of the target: one table, which loading reads.

A kind is a folder here: `pairing` recognises it in headers, `drafter` drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eaglechat.engine.drafters.base import DraftModel, Opening
from eaglechat.engine.drafters.eagle3 import drafter as eagle3
from eaglechat.engine.drafters.mtp import drafter as mtp
from eaglechat.wire.protocol import DrafterKind


@dataclass(frozen=True)
class Kind:
    """What a kind of drafter needs of a load, and how it is opened."""

    open: Callable[[Opening], DraftModel]
    """Raises InitError, ModelLoadError."""
    no_trees: str | None = None
    """Why it drafts chains only; None if it grows trees, with a sequence for each path."""
    is_in_target: bool = False
    """It is part of the target's file, and is loaded with it."""


KINDS: Mapping[DrafterKind, Kind] = {
    "eagle3": Kind(eagle3.open_drafter),
    "mtp": Kind(mtp.open_drafter, "MTP heads draft chains only", is_in_target=True),
}
