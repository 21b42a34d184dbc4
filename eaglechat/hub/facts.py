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
    reads: tuple[int, int] | None = None
    """Bytes of weights that a pass over one token, and one over four, reads; None if not known."""
    drafters: tuple[DrafterKind, ...] | None = None
    """What the pair drafts with, besides n-grams; None if that is not known."""


class _Kept(msgspec.Struct, frozen=True):
    facts: Facts
    asked_at: float


class FactBook:
    """The saved facts, by pair and context size. May be used from any thread."""

    def __init__(self) -> None:
        self._file = StateFile("hub-facts.json", dict[str, _Kept])
        self._known: dict[str, _Kept] | None = None

    def find(self, entry: CatalogueEntry, n_ctx: int, *, however_old: bool = False) -> Facts | None:
        """The saved facts; None if there are none, or if they are older than a week."""
        if self._known is None:
            self._known = self._file.read({})
        kept = self._known.get(_key(entry, n_ctx))
        is_fresh = kept is not None and time.time() - kept.asked_at < _FRESH_S
        return kept.facts if kept is not None and (is_fresh or however_old) else None

    def keep(self, entry: CatalogueEntry, n_ctx: int, facts: Facts) -> None:
        with self._file.changing({}) as known:
            known[_key(entry, n_ctx)] = _Kept(facts, time.time())
            self._known = known


def _key(entry: CatalogueEntry, n_ctx: int) -> str:
    """Includes the files, because a user can edit an entry and keep its name."""
    digest = hashlib.sha256(msgspec.json.encode((entry.target, entry.draft))).hexdigest()
    return f"{entry.name} {n_ctx} {digest[:16]}"
