"""What an EAGLE-3 session counts of itself, as llama.cpp's speculators do."""

from __future__ import annotations

from dataclasses import dataclass

from eaglechat.wire.records import N_DRAFT_MAX_LIMIT


@dataclass(frozen=True)
class SessionStats:
    """What a session did since it began; times in milliseconds."""

    n_drafts: int
    n_drafts_accepted: int
    """Drafts of which at least one token was accepted."""
    n_drafted: int
    n_accepted: int
    accepted_at: tuple[int, ...]
    process_ms: float
    draft_ms: float


class SessionCounts:
    """What `SessionStats` is made from."""

    def __init__(self) -> None:
        self.process_s = self.draft_s = 0.0
        self._drafts = self._drafts_accepted = self._drafted = self._accepted = 0
        self._accepted_at = [0] * N_DRAFT_MAX_LIMIT

    def note_draft(self, drafted: list[int]) -> None:
        self._drafts += bool(drafted)
        self._drafted += len(drafted)

    def note_accept(self, n_accepted: int) -> None:
        self._drafts_accepted += n_accepted > 0
        self._accepted += n_accepted
        for position in range(n_accepted):
            self._accepted_at[position] += 1

    def snapshot(self) -> SessionStats:
        return SessionStats(
            n_drafts=self._drafts,
            n_drafts_accepted=self._drafts_accepted,
            n_drafted=self._drafted,
            n_accepted=self._accepted,
            accepted_at=tuple(self._accepted_at),
            process_ms=self.process_s * 1000.0,
            draft_ms=self.draft_s * 1000.0,
        )
