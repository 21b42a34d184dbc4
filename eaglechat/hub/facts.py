"""What the Hub says of a pair before its download: size, memory needed, licences.

Saved on disk, so that the menu shows it at once and without a network.
"""

from __future__ import annotations

import hashlib
import time

import msgspec

from eaglechat.gguf.memory import MemoryNeed
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.state_file import StateFile
from eaglechat.wire.drafters import DrafterKind

_FRESH_S = 7 * 24 * 3600.0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the Hub says of a pair, for one context size. Sizes in bytes."""

    bytes_total: int
    gated: tuple[str, ...]
    """Repositories whose licence must be accepted on their page first."""
    licences: tuple[tuple[str, str], ...]
    memory: MemoryNeed | None = None
    """None if a header could not be read."""
    drafters: tuple[DrafterKind, ...] | None = None
    """What the pair drafts with, besides n-grams; None if that is not known."""


class KeptFacts(msgspec.Struct, frozen=True):
    facts: Facts
    asked_at: float

    @property
    def is_fresh(self) -> bool:
        """Whether the Hub need not be asked again."""
        return time.time() - self.asked_at < _FRESH_S


class FactBook:
    """The saved facts, by pair and context size. May be used from any thread."""

    def __init__(self) -> None:
        self._file = StateFile("hub-facts.json", dict[str, KeptFacts])
        self._known: dict[str, KeptFacts] | None = None

    def find(self, entry: CatalogueEntry, n_ctx: int) -> KeptFacts | None:
        if self._known is None:
            self._known = self._file.read({})
        return self._known.get(_key(entry, n_ctx))

    def keep(self, entry: CatalogueEntry, n_ctx: int, facts: Facts) -> None:
        with self._file.changing({}) as known:
            known[_key(entry, n_ctx)] = KeptFacts(facts, time.time())
            self._known = known


def _key(entry: CatalogueEntry, n_ctx: int) -> str:
    """Includes the files, because a user can edit an entry and keep its name."""
    digest = hashlib.sha256(msgspec.json.encode((entry.target, entry.draft))).hexdigest()
    return f"{entry.name} {n_ctx} {digest[:16]}"
