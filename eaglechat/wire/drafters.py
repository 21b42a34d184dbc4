"""The kinds of drafters that run a model: what all parts of the program call them.

How a kind drafts is a module of `engine/drafters`; what it fits is a row of `gguf/pairing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DrafterKind = Literal["eagle3", "eagle4", "mtp", "dflash", "dspark", "dflash2", "model"]
DrafterChoice = Literal["auto", DrafterKind, "ngram", "none"]
"""auto is the draft file, or else what the target's file has; ngram n-grams alone; none plain
decoding."""


@dataclass(frozen=True)
class DrafterNames:
    name: str
    """By people."""
    spec_type: str
    """By llama-server's `--spec-type`."""
    in_files: str = ""
    """In the names of its files and repositories: a regular expression; empty if no word tells, as
    “mtp” also stands in the names of whole models with such heads."""
    several: str = ""
    """The name of several, if it is another."""


DRAFTERS: Mapping[DrafterKind, DrafterNames] = {
    "eagle3": DrafterNames("EAGLE-3", "draft-eagle3", "eagle-?3"),
    "eagle4": DrafterNames("EAGLE-4", "draft-eagle3", "eagle-?4"),
    "mtp": DrafterNames("MTP heads", "draft-mtp"),
    "dflash": DrafterNames("DFlash", "draft-dflash", "dflash"),
    # With DFlash's word, DSpark drafts nothing that is accepted.
    "dspark": DrafterNames("DSpark", "draft-dspark", "dspark"),
    # It has no word of its own; a llama-server that does not know it fails to load the draft.
    "dflash2": DrafterNames("DFlash2", "draft-dflash", "dflash2"),
    "model": DrafterNames("draft model", "draft-simple", several="draft models"),
}
