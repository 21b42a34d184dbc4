"""The speculative loop: draft, verify, accept, round after round.

Verification is sample-and-match: the target samples its own token after each row of the batch
[last token, *draft]; as long as that token is the drafted one, the next row is its continuation.
Every emitted token is thus drawn from the target's distribution by the target's sampler, whatever
the draft proposed and at any temperature. Source: llama.cpp's examples/speculative-simple.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from eaglechat.engine.auto.auto_length import AutoLength
from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.draft_plan import DraftPlan, Observation
from eaglechat.engine.drafters.base import MOST_CAUGHT_UP, Drafter, Limits, Proposal, Spent
from eaglechat.engine.generation.caches import SEQ, Caches
from eaglechat.engine.generation.live import Live
from eaglechat.engine.generation.reply import ReplyState, ms_since
from eaglechat.engine.generation.window import ContextWindow, Turns
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import DecodeError, EngineError, ProcessError, PromptError
from eaglechat.wire.protocol import AUTO, Sampling, Speculation
from eaglechat.wire.records import (
    N_DRAFT_MAX_LIMIT,
    DraftToken,
    FinishReason,
    Prefill,
    ReplyEnd,
    Round,
    RoundTimings,
    SpeculationOff,
    Window,
)

ReplyEvent = Window | Prefill | Round | SpeculationOff | ReplyEnd

_DRAFT_FAILS = (ProcessError, DecodeError)
_STOPPED = 2
"""llama.cpp's status of a decode that was cancelled."""


class _StoppedError(Exception):
    """A decode was cancelled; some of its batch may be in the KV cache."""


class Generator:
    """Writes replies with one target context and, if there is one, a drafter.

    The KV caches live on between replies: what a prompt shares with the tokens already there is
    not decoded again.
    """

    def __init__(
        self,
        target: Context,
        drafter: Drafter | None,
        calibration: Calibration = NOT_CALIBRATED,
    ) -> None:
        self._target = target
        self._drafter = drafter
        self._batch = Batch(target)
        self._caches = Caches(target, drafter)
        self._first_turn = 0
        self._auto = AutoLength(calibration)

    def close(self) -> None:
        self._batch.close()

    @property
    def cached(self) -> Sequence[int]:
        """The tokens whose KV the target holds."""
        return tuple(self._caches.tokens)

    def reply(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        live: Live,
        *,
        seed: int,
        turns: Turns | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[ReplyEvent]:
        """Prefill `prompt`, then yield a Round for each pass and a ReplyEnd at the end.

        Where the context has no room for all of it, the oldest of its `turns` leave, before the
        reply and while it is written; a Window says so.
        Raises PromptError, DecodeError; a failing draft ends speculation, never the reply.
        """
        if not prompt:
            raise PromptError("the prompt is empty")
        window = ContextWindow(prompt, turns, self._target.n_ctx, can_shift=self._caches.can_shift)
        reply = ReplyState(
            self._target, prompt, sampling, seed=seed, max_tokens=max_tokens, stop=stop
        )
        self._auto.new_reply()
        self._caches.switch_extraction(live.speculation.enabled)
        started = time.perf_counter()
        yield from self._open_window(window, reply.tokens_left)
        self._check(window.tokens)
        for progress in self._prefill(window.tokens[:-1], live.speculation, reply, cancelled):
            reply.prefill = progress
            yield progress
        reply.prefill_ms = ms_since(started)
        reply.started = time.perf_counter()
        while reply.finish is None:
            if cancelled():
                reply.finish = FinishReason.CANCELLED
                break
            # Read once: a change from another thread waits for the next round.
            speculation = live.speculation
            reply.follow_temperature(live.temperature)
            yield from self._make_room(window, speculation, reply, cancelled)
            yield from self._follow(speculation, reply, cancelled)
            if reply.finish is not None:
                break
            round_ = self._round(speculation, reply)
            if reply.trouble is not None:
                yield SpeculationOff(reply.trouble)
                reply.trouble = None
            yield round_
        yield reply.end()

    def _check(self, prompt: Sequence[int]) -> None:
        if len(prompt) >= self._target.n_ctx:
            raise PromptError(
                f"the prompt has {len(prompt):,} tokens, the context holds "
                f"{self._target.n_ctx:,}; shorten it, or load the pair with a larger context "
                "(engine.n_ctx)"
            )

    def _open_window(self, window: ContextWindow, tokens_left: int) -> Iterator[Window]:
        """Let turns leave until there is room for a reply behind the prompt."""
        kv_kept = True
        if not window.has_room(tokens_left):
            # The turns that have left this conversation before stay away.
            window.begin_where_held(self._first_turn, self._caches.tokens)
            before = window.tokens
            if not window.has_room(tokens_left) and window.move():
                kv_kept = self._caches.shift(before, window.tokens)
        self._first_turn = window.first_turn
        if window.first_turn > 0:
            yield Window(window.first_turn, window.tokens_left, kv_kept)

    def _make_room(
        self,
        window: ContextWindow,
        speculation: Speculation,
        reply: ReplyState,
        cancelled: Callable[[], bool],
    ) -> Iterator[Window | Prefill]:
        """Let turns leave when a reply has come to the end of the context."""
        if self._target.n_ctx - len(self._caches.tokens) > N_DRAFT_MAX_LIMIT + 1:
            return
        # The prompt's last token is the first that a round decodes.
        before, written = window.tokens[:-1], self._caches.tokens[len(window.tokens) - 1 :]
        try:
            moved = window.move(len(written))
        except PromptError:
            # The template refuses the shorter conversation: the reply ends where the context does.
            moved = False
        if not moved:
            return
        self._first_turn = window.first_turn
        kv_kept = self._caches.shift(before, window.tokens[:-1])
        yield Window(window.first_turn, window.tokens_left, kv_kept)
        if not kv_kept:
            again = [*window.tokens[:-1], *written]
            yield from self._prefill(again, speculation, reply, cancelled)

    def _prefill(
        self,
        tokens: Sequence[int],
        speculation: Speculation,
        reply: ReplyState,
        cancelled: Callable[[], bool],
    ) -> Iterator[Prefill]:
        """Bring the target's KV cache to exactly `tokens`, chunk by chunk, and the draft's too
        where it is about to draft; elsewhere features wait for it, at no cost."""
        will_draft = self._will_draft(speculation, len(tokens))
        reused = self._caches.rewind(self._caches.reusable(tokens, will_draft=will_draft))
        yield Prefill(reused, len(tokens), reused)
        for first in range(reused, len(tokens), self._target.n_batch):
            if cancelled():
                reply.finish = FinishReason.CANCELLED
                return
            chunk = tokens[first : first + self._target.n_batch]
            try:
                with self._target.stopped_by(cancelled):
                    self._decode(chunk, first, reply, outputs=False)
            except _StoppedError:
                # A recurrent state has taken in some of the chunk already.
                self._caches.rewind(first if self._target.n_rollback is None else 0)
                reply.finish = FinishReason.CANCELLED
                return
            self._caches.tokens += chunk
            if will_draft and not reply.draft_failed:
                self._take_in(reply)
            yield Prefill(first + len(chunk), len(tokens), reused)

    def _will_draft(self, speculation: Speculation, n_past: int) -> bool:
        if self._drafter is None or not self._caches.extracting:
            return False
        self._drafter.most_waiting = _most_waiting(speculation)
        if speculation.n_draft_max == AUTO:
            return self._auto.expects_to_draft(n_past)
        return speculation.n_draft_max > 0

    def _take_in(self, reply: ReplyState) -> None:
        assert self._drafter is not None
        try:
            self._drafter.take_in()
        except _DRAFT_FAILS as error:
            self._abandon_draft(reply, error)

    def _decode(
        self, tokens: Sequence[int], position: int, reply: ReplyState, *, outputs: bool
    ) -> float:
        """Run the target over `tokens` and hand its features to the draft; the target's ms."""
        self._batch.clear()
        self._batch.add_tokens(tokens, position, SEQ, output=outputs)
        started = time.perf_counter()
        status = self._target.decode(self._batch)
        decode_ms = ms_since(started)
        if status == 1:
            raise DecodeError("the KV cache has no room for the batch; load a larger context")
        if status == _STOPPED:
            raise _StoppedError
        if status != 0:
            raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
        if self._drafter is not None and self._caches.extracting:
            try:
                self._drafter.see(self._batch)
            except _DRAFT_FAILS as error:
                self._abandon_draft(reply, error)
        return decode_ms

    def _follow(
        self, speculation: Speculation, reply: ReplyState, cancelled: Callable[[], bool]
    ) -> Iterator[Prefill]:
        """Switch speculation on or off, if the user did since the last round."""
        wanted = speculation.enabled and not reply.draft_failed
        self._caches.switch_extraction(wanted)
        if self._drafter is None or not wanted:
            return
        if self._drafter.known < len(self._caches.tokens):
            # Speculation came on in mid-reply: the draft must see what it missed.
            yield from self._prefill(list(self._caches.tokens), speculation, reply, cancelled)

    def _round(self, speculation: Speculation, reply: ReplyState) -> Round:
        """One pass: draft, verify, sample until the target disagrees."""
        started = time.perf_counter()
        drafter = self._drafter if self._caches.extracting else None
        before = drafter.spent if drafter is not None else Spent(0.0, 0.0)
        n_past = len(self._caches.tokens)
        waiting = min(drafter.waiting, MOST_CAUGHT_UP) if drafter is not None else 0
        n_draft_max, plan = self._draft_length(speculation, reply, n_past, waiting)
        limits = Limits(
            n_max=min(n_draft_max, self._draft_room(n_past, reply)),
            n_min=speculation.n_min,
            p_min=speculation.p_min,
            is_worth=plan.keeps if plan is not None else None,
        )
        drafted: list[DraftToken] = []
        if drafter is not None:
            drafter.most_waiting = _most_waiting(speculation)
            drafted = self._named(self._propose(drafter, reply, n_past, limits))
        drafting_ms = ms_since(started)

        verified = [reply.id_last, *(token.id for token in drafted)]
        verify_ms = self._decode(verified, n_past, reply, outputs=True)

        sample_started = time.perf_counter()
        tokens, n_tested, n_accepted = reply.verify(
            drafted, context_left=self._target.n_ctx - n_past
        )
        sample_s = time.perf_counter() - sample_started

        kept = [token.id for token in drafted[:n_accepted]]
        self._caches.tokens += [reply.id_last, *kept]
        reply.id_last = tokens[-1].id
        if n_accepted < len(drafted) and not self._target.forget(SEQ, len(self._caches.tokens)):
            raise DecodeError("the target cannot take back the rejected tokens")
        after = before
        if drafter is not None and not reply.draft_failed:
            drafter.accept(range(n_accepted))
            after = drafter.spent
        total_ms = ms_since(started)
        if plan is not None and not reply.draft_failed:
            self._auto.observe(
                plan,
                Observation(
                    n_past=n_past,
                    n_waiting=waiting,
                    probabilities=tuple(token.probability for token in drafted),
                    n_tested=n_tested,
                    n_accepted=n_accepted,
                    n_tokens=len(tokens),
                    draft_ms=drafting_ms,
                    verify_ms=total_ms - drafting_ms,
                ),
            )
        reply.trouble = reply.trouble or self._auto.failure()
        return reply.note(
            Round(
                index=reply.rounds,
                n_draft_max=n_draft_max,
                drafted=tuple(drafted),
                n_tested=n_tested,
                n_accepted=n_accepted,
                tokens=tuple(tokens),
                n_past=len(self._caches.tokens),
                timings=RoundTimings(
                    draft_ms=after.draft_ms - before.draft_ms,
                    verify_ms=verify_ms,
                    process_ms=after.process_ms - before.process_ms,
                    sample_ms=sample_s * 1000.0,
                    total_ms=total_ms,
                ),
                auto=plan.state if plan is not None else None,
            )
        )

    def _draft_length(
        self, speculation: Speculation, reply: ReplyState, n_past: int, waiting: int
    ) -> tuple[int, DraftPlan | None]:
        """The draft length in force, and the plan behind it where it is chosen automatically."""
        if self._drafter is None or not self._caches.extracting:
            return 0, None
        if speculation.n_draft_max == AUTO:
            room = 0 if self._drafter.is_blind else self._draft_room(n_past, reply)
            plan = self._auto.choose(n_past, room, waiting, speculation.n_min)
            return plan.n, plan
        return speculation.n_draft_max, None

    def _draft_room(self, n_past: int, reply: ReplyState) -> int:
        """The longest draft that context and reply have room for, and that can be taken back."""
        limit = N_DRAFT_MAX_LIMIT if self._target.n_rollback is None else self._target.n_rollback
        return max(0, min(limit, self._target.n_ctx - n_past - 1, reply.tokens_left - 1))

    def _propose(
        self, drafter: Drafter, reply: ReplyState, n_past: int, limits: Limits
    ) -> Proposal:
        """What the drafter proposes; nothing when it fails, which ends speculation."""
        if limits.n_max == 0:
            return Proposal()
        try:
            return drafter.propose(n_past, reply.id_last, limits)
        except _DRAFT_FAILS as error:
            self._abandon_draft(reply, error)
            return Proposal()

    def _named(self, proposal: Proposal) -> list[DraftToken]:
        piece = self._target.model.piece
        return [
            DraftToken(
                token.id,
                _plain_text(piece(token.id)),
                token.probability,
                token.parent,
                token.drafter,
            )
            for token in proposal
        ]

    def _abandon_draft(self, reply: ReplyState, error: EngineError) -> None:
        """Go on without the draft; the next reply builds its KV cache anew."""
        assert self._drafter is not None
        self._drafter.resume((), to_draft=False)
        reply.draft_failed = True
        reply.trouble = f"the draft failed: {error}"
        self._caches.switch_extraction(False)


def _most_waiting(speculation: Speculation) -> int:
    return MOST_CAUGHT_UP if speculation.n_draft_max == AUTO else 0


def _plain_text(piece: bytes) -> str:
    return piece.decode("utf-8", errors="replace")
