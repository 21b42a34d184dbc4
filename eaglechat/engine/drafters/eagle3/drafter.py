"""EAGLE-3 as a drafter of the loop."""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.engine.drafters.base import Limits, Proposal, ProposedToken, Spent
from eaglechat.engine.drafters.eagle3.session import Eagle3Session
from eaglechat.engine.drafters.eagle3.waiting_rows import Boundary
from eaglechat.engine.llama.objects import Batch

SEQ = 0
"""The loop has one sequence."""


class Eagle3Drafter:
    """Proposes chains and trees for the first sequence of a session, which it owns."""

    name = "eagle3"
    fallback = None

    def __init__(self, session: Eagle3Session) -> None:
        self._session = session

    def close(self) -> None:
        self._session.close()

    @property
    def known(self) -> int:
        return self._session.known_length(SEQ)

    @property
    def waiting(self) -> int:
        return self._session.waiting(SEQ)

    @property
    def is_blind(self) -> bool:
        return self._session.is_blind(SEQ)

    @property
    def grows_trees(self) -> bool:
        return self._session.grows_trees

    @property
    def spent(self) -> Spent:
        return Spent(*self._session.spent_ms)

    def listen(self, enabled: bool) -> None:
        self._session.set_extraction(enabled)

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        kept = self._session.resumable(SEQ, len(tokens), to_draft=to_draft)
        self._session.rewind(SEQ, kept)
        return kept

    def mark(self) -> object:
        return self._session.mark(SEQ)

    def restore(self, length: int, mark: object) -> None:
        # Else the n-grams made it while the draft had failed: it knows nothing of that place.
        if isinstance(mark, Boundary):
            self._session.restore(SEQ, length, mark)

    def shift(self, start: int, end: int) -> None:
        self._session.shift(SEQ, start, end)

    def see(self, batch: Batch) -> None:
        self._session.process(batch)

    def take_in(self) -> None:
        self._session.take_in(SEQ)

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        self._session.limits = limits
        ids = self._session.draft(SEQ, n_past, id_last)
        tokens = zip(ids, self._session.probabilities(SEQ), self._session.parents(SEQ), strict=True)
        return Proposal(ProposedToken(*token, self.name) for token in tokens)

    def accept(self, path: Sequence[int]) -> None:
        self._session.accept_path(SEQ, path)
