"""The kinds of drafters that run a model: one table, which loading reads.

A kind is a folder here: `pairing` recognises it in headers, `drafter` drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eaglechat.engine.drafters.base import DraftModel, Opening
from eaglechat.engine.drafters.dflash import drafter as dflash
from eaglechat.engine.drafters.eagle3 import drafter as eagle3
from eaglechat.engine.drafters.model import drafter as model
from eaglechat.engine.drafters.mtp import drafter as mtp
from eaglechat.wire.protocol import DrafterKind


@dataclass(frozen=True)
class Kind:
    """How a kind of drafter is opened, and what it can propose."""

    open: Callable[[Opening], DraftModel]
    """Raises InitError, ModelLoadError."""
    no_trees: str | None = None
    """Why it drafts chains only; None if it grows trees, with a sequence for each path."""


_ONE_PASS = "a block is drafted in one pass, as a chain"

KINDS: Mapping[DrafterKind, Kind] = {
    "eagle3": Kind(eagle3.open_drafter),
    "eagle4": Kind(eagle3.open_drafter),
    "mtp": Kind(mtp.open_drafter, "MTP heads draft chains only"),
    "dflash": Kind(dflash.open_drafter, _ONE_PASS),
    "dspark": Kind(dflash.open_drafter, _ONE_PASS),
    "dflash2": Kind(dflash.open_drafter, _ONE_PASS),
    "model": Kind(model.open_drafter, "a draft model drafts chains only"),
}
