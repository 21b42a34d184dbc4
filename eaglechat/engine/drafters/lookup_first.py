"""n-grams ahead of another drafter: what costs nothing is tried first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eaglechat.engine.drafters.base import Drafter, Limits, Proposal, Spent
from eaglechat.engine.drafters.ngram import NgramDrafter
from eaglechat.engine.llama.objects import Batch


class LookupFirst:
    """Looks up what followed the last tokens before; where that is nothing, or not worth a pass,
    the other drafter is asked, if there is one. Both see all that the target decodes."""

    name = "ngram first"

    def __init__(self, drafter: Drafter | None, ngram: NgramDrafter | None = None) -> None:
        self._ngram = ngram or NgramDrafter()
        self._drafter = drafter
        # Where the draft fails in one of these, the n-grams are not left behind.
        self._both: tuple[Drafter, ...] = (self._ngram, drafter) if drafter else (self._ngram,)
        self.fallback: LookupFirst | None = LookupFirst(None, self._ngram) if drafter else None

    @property
    def known(self) -> int:
        return min(drafter.known for drafter in self._both)

    @property
    def waiting(self) -> int:
        return self._both[-1].waiting

    @property
    def is_blind(self) -> bool:
        return self._drafter is None or self._drafter.is_blind

    @property
    def grows_trees(self) -> bool:
        return self._drafter is not None and self._drafter.grows_trees

    @property
    def spent(self) -> Spent:
        process_ms, draft_ms = zip(*(drafter.spent for drafter in self._both), strict=True)
        return Spent(sum(process_ms), sum(draft_ms))

    def listen(self, enabled: bool) -> None:
        for drafter in self._both:
            drafter.listen(enabled)

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        kept = len(tokens)
        for drafter in reversed(self._both):
            kept = drafter.resume(tokens[:kept], to_draft=to_draft)
        return kept

    def mark(self) -> object:
        return self._both[-1].mark()

    def restore(self, length: int, mark: object) -> None:
        self._both[-1].restore(length, mark)

    def shift(self, start: int, end: int) -> None:
        for drafter in self._both:
            drafter.shift(start, end)

    def see(self, batch: Batch) -> None:
        for drafter in self._both:
            drafter.see(batch)

    def take_in(self) -> None:
        self._both[-1].take_in()

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        if limits.n_lookup:
            lookup = replace(limits, n_max=limits.n_lookup, is_worth=None)
            found = self._ngram.propose(n_past, id_last, lookup)
            n_taken = limits.taken(found) if found else 0
            if n_taken and limits.suffices(n_taken):
                return found.first(n_taken)
        if self._drafter is None or limits.n_max == 0:
            return Proposal()
        return self._drafter.propose(n_past, id_last, limits)

    def accept(self, path: Sequence[int]) -> None:
        for drafter in self._both:
            drafter.accept(path)
