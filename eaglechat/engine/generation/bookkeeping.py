"""Keeps the books of a reply: what each round was asked for, took and gave.

They become the records, and what the automatic length learns from.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from eaglechat.engine.auto.auto_length import AutoLength
from eaglechat.engine.auto.draft_plan import DraftPlan, Observation
from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.base import MOST_CAUGHT_UP, Limits, Proposal
from eaglechat.engine.generation.drafting import Drafting
from eaglechat.engine.generation.reply import Verdict
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import DraftToken, Prefill, ReplyTimings, Round, RoundTimings, summed


class ReplyBooks:
    """The books of one reply."""

    def __init__(self, drafting: Drafting, auto: AutoLength, piece: Callable[[int], bytes]) -> None:
        self._drafting = drafting
        self._auto = auto
        self._piece = piece
        self._began = time.perf_counter()
        self._prefill_ms = 0.0
        self._prefill = Prefill(0, 0, 0)
        self._rounds: list[RoundTimings] = []

    def note_prefill(self, progress: Prefill) -> None:
        self._prefill = progress

    def begin_rounds(self) -> None:
        """The prompt has been read."""
        self._prefill_ms = ms_since(self._began)
        self._began = time.perf_counter()

    def begin_round(self, speculation: Speculation, n_past: int, room: int) -> RoundBooks:
        """Decide how far a round drafts behind `n_past` tokens, with room for so many."""
        return RoundBooks(self._drafting, self._auto, speculation, n_past, max(0, room))

    def end_round(self, books: RoundBooks) -> Round:
        round_ = books.close(len(self._rounds), self._piece)
        self._rounds.append(round_.timings)
        return round_

    def timings(self) -> ReplyTimings:
        """Of the whole reply, which has ended."""
        return ReplyTimings(
            prefill_ms=self._prefill_ms,
            prefill_tokens=self._prefill.done - self._prefill.reused,
            reused_tokens=self._prefill.reused,
            generation_ms=ms_since(self._began),
            draft_ms=summed(times.draft_ms for times in self._rounds),
            verify_ms=summed(times.verify_ms for times in self._rounds),
            process_ms=summed(times.process_ms for times in self._rounds),
            sample_ms=summed(times.sample_ms for times in self._rounds),
        )


class RoundBooks:
    """The books of one round, which its parts are entered into in the order they happen."""

    def __init__(
        self,
        drafting: Drafting,
        auto: AutoLength,
        speculation: Speculation,
        n_past: int,
        room: int,
    ) -> None:
        self._began = time.perf_counter()
        self._drafting = drafting
        self._auto = auto
        self._spent_before = drafting.spent
        self._n_past = n_past
        self._n_waiting = min(drafting.waiting, MOST_CAUGHT_UP)
        self._plan: DraftPlan | None = None
        n_draft_max = 0
        if drafting.on and speculation.n_draft_max == AUTO:
            room = 0 if drafting.is_blind else room
            self._plan = auto.choose(n_past, room, self._n_waiting, speculation.n_min)
            n_draft_max = self._plan.n
        elif drafting.on:
            n_draft_max = int(speculation.n_draft_max)
        self._n_draft_max = n_draft_max
        self.limits = Limits(
            n_max=min(n_draft_max, room),
            n_min=speculation.n_min,
            p_min=speculation.p_min,
            is_worth=self._plan.keeps if self._plan is not None else None,
        )

    def drafted(self, proposal: Proposal) -> None:
        self._proposal = proposal
        self._drafting_ms = ms_since(self._began)

    def decoded(self, verify_ms: float) -> None:
        self._verify_ms = verify_ms
        self._sampling_began = time.perf_counter()

    def verified(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._sample_ms = ms_since(self._sampling_began)

    def close(self, index: int, piece: Callable[[int], bytes]) -> Round:
        """The round's record; what is chosen automatically learns from it."""
        total_ms = ms_since(self._began)
        verdict, proposal = self._verdict, self._proposal
        spent = self._drafting.spent
        if self._plan is not None and self._drafting.on:
            self._auto.observe(
                self._plan,
                Observation(
                    n_past=self._n_past,
                    n_waiting=self._n_waiting,
                    probabilities=tuple(token.probability for token in proposal),
                    n_tested=verdict.n_tested,
                    n_accepted=len(verdict.path),
                    n_tokens=len(verdict.tokens),
                    draft_ms=self._drafting_ms,
                    verify_ms=total_ms - self._drafting_ms,
                ),
            )
        return Round(
            index=index,
            n_draft_max=self._n_draft_max,
            drafted=tuple(
                DraftToken(
                    token.id,
                    piece(token.id).decode("utf-8", errors="replace"),
                    token.probability,
                    token.parent,
                    token.drafter,
                )
                for token in proposal
            ),
            n_tested=verdict.n_tested,
            n_accepted=len(verdict.path),
            tokens=verdict.tokens,
            n_past=self._n_past + 1 + len(verdict.path),
            timings=RoundTimings(
                draft_ms=max(0.0, spent.draft_ms - self._spent_before.draft_ms),
                verify_ms=self._verify_ms,
                process_ms=max(0.0, spent.process_ms - self._spent_before.process_ms),
                sample_ms=self._sample_ms,
                total_ms=total_ms,
            ),
            auto=self._plan.state if self._plan is not None else None,
        )
