"""What the menu knows of a model so far, from its files, the Hub, its server and measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eaglechat.gguf.memory import MemoryNeed, default_context, memory_need
from eaglechat.hub import fit
from eaglechat.hub.facts import Facts
from eaglechat.hub.fit import Fit, Machine
from eaglechat.hub.local.pairs import InspectedPair, OfferedPair
from eaglechat.hub.local.speeds import Gain
from eaglechat.tui.screens.menu.servers import ServerNews
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.records import KvType
from eaglechat.words import drafting

if TYPE_CHECKING:
    from eaglechat.hub.downloads.queue import Install


@dataclass(frozen=True)
class Known:
    """A row of the menu that is a model, and what is known of it."""

    offer: OfferedPair
    machine: Callable[[], Machine]
    n_ctx: int
    kv_types: tuple[KvType, KvType] = ("f16", "f16")
    """KV cache types of the target and of the draft."""
    status: InspectedPair | None = None
    facts: Facts | None = None
    trouble: str | None = None
    """Why the Hub has no facts of this pair."""
    moving: Install | None = None
    news: ServerNews | None = None
    """The last answer of the server that has it."""
    gain: Gain | None = None

    @property
    def problem(self) -> str | None:
        """Why the pair cannot run here."""
        if self.status is not None and self.status.problem:
            return self.status.problem
        judged = self.fit
        return judged.text if judged is not None and judged.fits is False else None

    @property
    def drafters(self) -> tuple[DrafterKind, ...] | None:
        """What drafts, besides n-grams; None if that is not known."""
        entry = self.offer.entry
        if self.status is not None and self.status.target is not None:
            return self.status.drafters
        if self.facts is not None and self.facts.drafters is not None:
            return self.facts.drafters
        if entry is None:
            return None
        kind = entry.drafter or ("eagle3" if entry.draft.checkpoint else None)
        return (kind,) if kind else None

    @property
    def need(self) -> MemoryNeed | None:
        """The memory that the pair needs; None if its headers are not known."""
        if self.status is not None and self.status.loaded_target is not None:
            models = self.status.loaded_target, self.status.draft
            n_ctx = self.n_ctx or default_context(*models, fit.free(self.machine()), *self.kv_types)
            return memory_need(*models, n_ctx, *self.kv_types)
        return self.facts.memory if self.facts is not None else None

    @property
    def fit(self) -> Fit | None:
        if (need := self.need) is not None:
            return fit.judge(need, self.machine())
        if (seen := self.seen_bytes) is None:
            return None
        judged = fit.judge_weights(seen, self.machine())
        if judged is not None and judged.fits and self.n_ctx:
            # A context of a given size does not shrink.
            return replace(judged, word=None)
        return judged

    @property
    def seen_bytes(self) -> int | None:
        """What the catalogue says of the size of a pair that is not here: of both files, or of the
        target alone."""
        entry = self.offer.entry if self.offer.pair is None else None
        return (entry.size or entry.target.size) if entry else None

    def rank(self, words: Sequence[str]) -> int | None:
        """How well it matches the words: 0 by its whole name, 1 by a part of it, 2 by something
        else; None if a word is missing."""
        name = self.offer.name.casefold()
        if name.split() == [*words]:
            return 0
        if all(word in name for word in words):
            return 1
        return 2 if all(word in self._searched for word in words) else None

    @property
    def _searched(self) -> str:
        """The text that typing filters."""
        offer, entry = self.offer, self.offer.entry
        words = [offer.name, offer.state, offer.pair.target.name if offer.pair else ""]
        if entry is not None:
            words += [entry.title, entry.licence, entry.architecture or ""]
            words += [str(entry.target), entry.base_model or ""]
            words += [entry.draft.of_hub]
        if self.status is not None:
            headers = filter(None, (self.status.target, self.status.draft))
            words += [f"{header.architecture} {header.quantization}" for header in headers]
        if self.drafters is not None:
            words.append(drafting.badge(self.drafters))
        return " ".join(words).casefold()
