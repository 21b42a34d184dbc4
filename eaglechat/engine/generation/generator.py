"""The speculative loop: draft, verify, accept, round after round.

Verification is sample-and-match. The batch [last token, *proposal] gives a row of logits behind
each token. The target's sampler draws its own token from the first row; while the token it draws is
a proposed one, the row behind that one is next. So every token is drawn from the target's own
distribution, whatever was proposed and at any temperature. Source: llama.cpp's
examples/speculative-simple.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Generator as Stream
from contextlib import closing
from functools import partial
from types import MappingProxyType

from eaglechat.engine.auto.calibration import Calibration
from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.base import MOST_WAITING, DraftModel
from eaglechat.engine.drafters.ngram import NgramDrafter
from eaglechat.engine.generation.cache_state import CacheState
from eaglechat.engine.generation.context_window import ContextWindow, PromptTurns
from eaglechat.engine.generation.guarded_drafters import GuardedDrafters
from eaglechat.engine.generation.live import Live
from eaglechat.engine.generation.planner import Planner
from eaglechat.engine.generation.prefill import Reader
from eaglechat.engine.generation.reply import ReplyState
from eaglechat.engine.llama.objects import Context
from eaglechat.engine.templates.dialect import ReplyParts
from eaglechat.wire.errors import PromptError
from eaglechat.wire.load_options import CHECKPOINTS_MIB
from eaglechat.wire.protocol import AUTO, Sampling, Speculation
from eaglechat.wire.records import (
    N_DRAFT_MAX_LIMIT,
    DraftToken,
    FinishReason,
    Prefill,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    SpeculationOff,
    Window,
    sums,
)

ReplyEvent = Window | Prefill | Round | SpeculationOff | ReplyEnd


class Generator:
    """Writes replies with one target context, n-grams and draft models, each if there is one.

    The KV caches live on between replies: tokens that a prompt shares with those already there are
    not decoded again.
    """

    def __init__(
        self,
        target: Context,
        models: Sequence[DraftModel] = (),
        ngram: NgramDrafter | None = None,
        calibrations: Mapping[str, Calibration] = MappingProxyType({}),
        checkpoint_bytes: int = CHECKPOINTS_MIB << 20,
    ) -> None:
        """The first of `models` drafts until another is faster or asked for. `calibrations` are by
        their names; empty stands for n-grams alone."""
        self._target = target
        self._drafters = GuardedDrafters(models, ngram)
        self._cache = CacheState(target, self._drafters, checkpoint_bytes)
        self._planner = Planner(self._drafters, calibrations)
        self._learning_ms = 0.0
        """Milliseconds that learning from the last round took: they are of the next one."""

    def close(self) -> None:
        self._cache.close()

    @property
    def cached(self) -> Sequence[int]:
        """The tokens that the target's KV cache holds."""
        return tuple(self._cache.tokens)

    @property
    def checkpoints(self) -> tuple[int, int]:
        """The number of saved recurrent states, and their bytes."""
        return len(self._cache.checkpoints), self._cache.checkpoints.n_bytes

    def would_read(
        self, prompt: Sequence[int], turns: PromptTurns, max_tokens: int | None
    ) -> tuple[int, Sequence[int]]:
        """The first turn that a reply to `prompt` would have in the context, and the tokens from
        there on. Nothing changes. Raises PromptError."""
        cache, n_ctx = self._cache, self._target.n_ctx
        window = ContextWindow(prompt, turns, n_ctx, can_shift=cache.can_shift)
        window.fit(max_tokens or n_ctx, cache.first_turn, cache.tokens)
        _check_fits(window.tokens, n_ctx)
        return window.first_turn, window.tokens

    def reply(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        live: Live,
        *,
        seed: int,
        turns: PromptTurns | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        parts: ReplyParts | None = None,
        top: int = 0,
        cancelled: Callable[[], bool] = lambda: False,
        boundaries: Callable[[], Sequence[int]] = tuple,
    ) -> Iterator[ReplyEvent]:
        """Prefill `prompt`, then yield a Round for each pass, and a ReplyEnd at the end.

        If the context has no room for all of it, the oldest of its `turns` leave, before the reply
        and while it is written; a Window tells of each time. `boundaries` gives positions in the
        prompt up to which the next prompt may be the same. It is called only if the target has a
        recurrent state, which cannot be rewound. Raises PromptError, DecodeError; a failing drafter
        ends speculation, never the reply.
        """
        if not prompt:
            raise PromptError("the prompt is empty")
        target, cache, planner = self._target, self._cache, self._planner
        live.has_begun = True
        began = time.perf_counter()
        rounds: list[RoundTimings] = []
        window = ContextWindow(prompt, turns, target.n_ctx, can_shift=cache.can_shift)
        reader = Reader(cache, self._drafters, planner, target.n_batch, cancelled)
        reply = ReplyState(
            target,
            prompt,
            sampling,
            seed=seed,
            max_tokens=max_tokens,
            stop=stop,
            parts=parts,
            top=top,
        )
        with closing(reply):
            before = window.fit(reply.tokens_left, cache.first_turn, cache.tokens)
            kv_kept = before is window.tokens or cache.shift(before, window.tokens)
            cache.first_turn = window.first_turn
            n_again = partial(cache.n_again, window.tokens)
            goes_on = parts is not None and bool(parts.begun)
            planner.new_reply(live.speculation, len(window.tokens), n_again, goes_on=goes_on)
            if window.first_turn > 0:
                yield Window(window.first_turn, window.tokens_left, kv_kept)
            _check_fits(window.tokens, target.n_ctx)
            left = window.tokens_left
            ends = [] if target.n_rollback is None else [end - left for end in boundaries()]
            for prefill in reader.read(window.tokens[:-1], live.speculation, ends):
                yield prefill
            if reader.stopped:
                reply.finish = FinishReason.CANCELLED
            prefill_ms = ms_since(began)
            began = time.perf_counter()
            while reply.finish is None:
                read_ms = reader.ms
                # Read once: a change from another thread waits for the next round.
                speculation = live.speculation
                reply.follow_temperature(live.temperature)
                self._drafters.follow(speculation)
                yield from self._make_room(window, reader, speculation)
                given = yield from self._end_reasoning(live, reply, reader, speculation)
                yield from reader.catch_up(speculation)
                if reader.stopped or cancelled():
                    reply.finish = FinishReason.CANCELLED
                    break
                # Reading again in mid-reply is not generation. All else since the last round is.
                began += (reader.ms - read_ms) / 1000.0
                round_ = self._round(reply, speculation, len(rounds), given, began)
                began += round_.timings.total_ms / 1000.0
                rounds.append(round_.timings)
                failure = self._drafters.failure() or planner.failure()
                if failure is not None:
                    yield SpeculationOff(failure)
                yield round_
            timings = ReplyTimings(
                prefill_ms=prefill_ms,
                prefill_tokens=prefill.done - prefill.reused,
                reused_tokens=prefill.reused,
                generation_ms=sum(one.total_ms for one in rounds),
                **sums(rounds),
            )
            yield reply.end(timings)

    def _round(
        self,
        reply: ReplyState,
        speculation: Speculation,
        index: int,
        given: tuple[int, ...],
        began: float,
    ) -> Round:
        """One pass: look up, choose, draft, verify, accept, learn. `began` is when the round before
        ended, as `time.perf_counter` has it."""
        cache, drafters, planner = self._cache, self._drafters, self._planner
        started, spent = time.perf_counter(), drafters.spent
        if speculation.n_draft_max == AUTO and drafters.waiting > MOST_WAITING:
            # Plain rounds leave rows that the draft model has not taken in. More of them would make
            # trying a draft too dear.
            drafters.take_in()
        n_past, id_last = len(cache.tokens), reply.id_last
        room = max(0, min(cache.longest_draft, reply.tokens_left - 1))

        found = planner.look_up(n_past, id_last, room, speculation)
        plan = planner.choose(found, n_past, room, speculation)
        proposal = plan.taken or drafters.draft(n_past, id_last, plan.limits)
        proposed_ms, proposed = ms_since(started), drafters.spent

        verify_ms = cache.decode(id_last, proposal)
        sampling_began = time.perf_counter()
        verdict = reply.verify(proposal, context_left=cache.room)
        sample_ms = ms_since(sampling_began)
        cache.accept(verdict.path)
        total_ms = ms_since(began)

        spent_now, piece = drafters.spent, self._target.model.piece
        planning_ms = proposed_ms - (sum(proposed) - sum(spent)) + self._learning_ms
        learning = time.perf_counter()
        planner.learn(plan, proposal, verdict, proposed_ms, total_ms - proposed_ms)
        self._learning_ms = ms_since(learning)
        round_ = Round(
            index=index,
            n_draft_max=plan.n_draft_max,
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
            n_past=len(cache.tokens),
            timings=RoundTimings(
                draft_ms=spent_now.draft_ms - spent.draft_ms,
                verify_ms=verify_ms,
                process_ms=spent_now.process_ms - spent.process_ms + planning_ms,
                sample_ms=sample_ms,
                total_ms=total_ms,
            ),
            auto=plan.auto.state if plan.auto is not None else None,
            given=given,
            likely=verdict.likely,
            is_plain_check=plan.is_plain_check,
        )
        planner.count(round_)
        return round_

    def _make_room(
        self, window: ContextWindow, reader: Reader, speculation: Speculation
    ) -> Iterator[Window | Prefill]:
        """Have the oldest turns leave when a reply has come to the end of the context."""
        cache = self._cache
        if cache.room > N_DRAFT_MAX_LIMIT + 1:
            return
        # The prompt's last token is the first that a round decodes.
        before, written = window.tokens[:-1], cache.tokens[len(window.tokens) - 1 :]
        try:
            moved = window.move(len(written))
        except PromptError:
            # The template refuses the shorter conversation: the reply ends where the context does.
            return
        if not moved:
            return
        cache.first_turn = window.first_turn
        kv_kept = cache.shift(before, window.tokens[:-1])
        yield Window(window.first_turn, window.tokens_left, kv_kept)
        if not kv_kept:
            yield from reader.read([*window.tokens[:-1], *written], speculation)

    def _end_reasoning(
        self, live: Live, reply: ReplyState, reader: Reader, speculation: Speculation
    ) -> Stream[Prefill, None, tuple[int, ...]]:
        """If the user wants the answer now, read the tokens that end the reasoning as if they had
        been sampled. Returns them; none if nobody asked or there is no reasoning to end."""
        if not live.answer_now:
            return ()
        live.answer_now = False
        id_last = reply.id_last
        given = reply.end_reasoning(context_left=self._cache.room)
        if given:
            yield from reader.read([*self._cache.tokens, id_last, *given[:-1]], speculation)
        return given


def _check_fits(prompt: Sequence[int], n_ctx: int) -> None:
    if len(prompt) >= n_ctx:
        raise PromptError(
            f"the prompt has {len(prompt):,} tokens, the context holds {n_ctx:,}; shorten it, or "
            "load the pair with a larger context (engine.n_ctx)"
        )
