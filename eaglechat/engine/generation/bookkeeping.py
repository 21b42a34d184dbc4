"""Keeps the books of a reply: what each round was asked for, took and gave.

They become the records, and what the automatic choice learns from.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from eaglechat.engine.auto.auto_length import AutoLength
from eaglechat.engine.auto.draft_plan import TREE, Choice, DraftPlan, Observation, shapes_open
from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.base import NO_DRAFT, Limits, Proposal, Spent
from eaglechat.engine.generation.drafting import Drafting
from eaglechat.engine.generation.reply import Verdict
from eaglechat.engine.generation.window import common_prefix
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

    def begin_rounds(self, read_ms: float) -> None:
        """The prompt has been read, for so long."""
        self._read_ms = read_ms
        self._prefill_ms = ms_since(self._began)
        self._began = time.perf_counter()

    def begin_round(self, speculation: Speculation, n_past: int, room: int) -> RoundBooks:
        """Decide how far a round drafts behind `n_past` tokens, with room for so many."""
        return RoundBooks(self._drafting, self._auto, speculation, n_past, max(0, room))

    def end_round(self, books: RoundBooks, given: tuple[int, ...]) -> Round:
        """Its record; `given` are tokens that were put before it."""
        round_ = books.close(len(self._rounds), given, self._piece)
        self._rounds.append(round_.timings)
        return round_

    def timings(self, read_ms: float) -> ReplyTimings:
        """Of the whole reply, which has ended, and for which was read for so long. What was read
        again in its midst was not generated."""
        return ReplyTimings(
            prefill_ms=self._prefill_ms,
            prefill_tokens=self._prefill.done - self._prefill.reused,
            reused_tokens=self._prefill.reused,
            generation_ms=ms_since(self._began) - (read_ms - self._read_ms),
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
        self._n_past = n_past
        self._plan: DraftPlan | None = None
        self._n_draft_max = 0
        self._found = Proposal()
        self.limits = NO_DRAFT
        if drafting.on:
            self._spent_before = drafting.spent
            self._limit(speculation, room)

    def _limit(self, speculation: Speculation, room: int) -> None:
        """Set the draft length in force, how far it can be had, and the shape."""
        taken: Callable[[Proposal], int] = len
        shapes = shapes_open(speculation.shape, self._drafting.grows_trees)
        self._n_waiting = self._drafting.waiting
        if speculation.n_draft_max == AUTO:
            n_lookup, taken = room, self._take_what_pays
            room = 0 if self._drafting.is_blind else room
            choice = Choice(room, speculation.n_min, shapes)
            self._plan = self._auto.choose(self._n_past, self._n_waiting, choice)
            self._n_draft_max = self._plan.n
        else:
            self._n_draft_max = speculation.n_draft_max
            n_lookup = room = min(self._n_draft_max, room)
            if len(shapes) > 1 and room > 1:
                taken = self._take_all
                choice = Choice(room, room, shapes, plain=False)
                self._plan = self._auto.choose(self._n_past, self._n_waiting, choice)
        shape = self._plan.shape if self._plan is not None else shapes[0]
        self.limits = Limits(
            n_max=min(self._n_draft_max, room),
            n_min=speculation.n_min,
            p_min=speculation.p_min,
            is_worth=self._plan.keeps if self._plan is not None and self._plan.worth else None,
            is_tree=shape == TREE,
            n_lookup=n_lookup if speculation.ngram else 0,
            taken=taken,
        )

    def _take_all(self, found: Proposal) -> int:
        self._found = found
        if self.limits.suffices(len(found)):
            self._plan = DraftPlan(len(found), is_looked_up=True)
        return len(found)

    def _take_what_pays(self, found: Proposal) -> int:
        assert self._plan is not None
        self._found = found
        instead = self._auto.worth_taking(self._plan, found.probabilities)
        if instead is None or not self.limits.suffices(instead.n):
            return 0
        self._plan, self._n_draft_max = instead, instead.n
        return instead.n

    def drafted(self, proposal: Proposal) -> None:
        self._proposal = proposal
        self._drafting_ms = ms_since(self._began)

    def decoded(self, verify_ms: float) -> None:
        self._verify_ms = verify_ms
        self._sampling_began = time.perf_counter()

    def verified(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._sample_ms = ms_since(self._sampling_began)

    def close(self, index: int, given: tuple[int, ...], piece: Callable[[int], bytes]) -> Round:
        """The round's record; what is chosen automatically learns from it."""
        total_ms = ms_since(self._began)
        verdict, proposal = self._verdict, self._proposal
        drafter_ms = Spent(0.0, 0.0)
        # A round in which a drafter fails has the times of none.
        has_drafter = self._drafting.on and not self._drafting.has_failed
        if has_drafter:
            drafter_ms = self._drafting.spent.since(self._spent_before)
        if self._plan is not None and has_drafter:
            self._auto.observe(
                self._plan,
                Observation(
                    n_past=self._n_past,
                    n_waiting=self._n_waiting,
                    probabilities=tuple(proposal.probabilities),
                    parents=tuple(proposal.parents),
                    path=verdict.path,
                    n_tested=verdict.n_tested,
                    n_tokens=len(verdict.tokens),
                    draft_ms=self._drafting_ms,
                    verify_ms=total_ms - self._drafting_ms,
                    found=tuple(self._found.probabilities),
                    n_right=common_prefix(self._found.ids, [token.id for token in verdict.tokens]),
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
                draft_ms=drafter_ms.draft_ms,
                verify_ms=self._verify_ms,
                process_ms=drafter_ms.process_ms,
                sample_ms=self._sample_ms,
                total_ms=total_ms,
            ),
            auto=self._plan.state if self._plan is not None else None,
            given=given,
            likely=verdict.likely,
        )
