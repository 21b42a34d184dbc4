"""The speculative loop: draft, verify, accept, round after round.

The batch [last token, *proposal] gives a row of logits behind each token. The target's sampler
draws its own token from the first row; while the token it draws is a proposed one, the row behind
that one is next. Source: llama.cpp's examples/speculative-simple. Above temperature 0 a draft model
may draw what it proposes: then the sampler accepts that token or draws another (llama/sampler.py).
So every token is drawn from the target's own distribution, whatever was proposed.
"""

from __future__ import annotations

import time
from collections.abc import Generator as Stream
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from eaglechat.engine.auto.calibration import Calibration
from eaglechat.engine.auto.controller import Seen
from eaglechat.engine.auto.kept import Kept
from eaglechat.engine.auto.planner import Planner
from eaglechat.engine.cache import CacheState
from eaglechat.engine.drafters.base import Drafter
from eaglechat.engine.drafters.guard import GuardedDrafters
from eaglechat.engine.drafters.ngram import look_up
from eaglechat.engine.drafters.proposal import Proposal
from eaglechat.engine.llama.objects import Context
from eaglechat.engine.prompt import Asked, ContextWindow
from eaglechat.engine.reply import ReplyState
from eaglechat.wire.errors import Cancelled, PromptError
from eaglechat.wire.protocol import AUTO, CHECKPOINTS_MIB, Sampling, Set, Speculation
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
    ms_since,
    sums,
)
from eaglechat.wire.worker import check

ReplyEvent = Window | Prefill | Round | SpeculationOff | ReplyEnd


class Live:
    """What may change while a reply is written: the loop reads it before each round, and any thread
    may set it. Each value is immutable and replaced as a whole, so a round never sees half a
    change."""

    def __init__(self, speculation: Speculation, temperature: float) -> None:
        self.speculation = speculation
        self.temperature = temperature
        self.has_begun = False
        """Whether the reply is being written, and not waiting."""
        self.answer_now = False
        """Whether the model should stop thinking. The loop resets this once it has acted on it."""

    def apply(self, change: Set) -> None:
        """Set the fields that a request gives. Who drafts is settled for a whole reply."""
        given = {
            name: value
            for name in Speculation.__struct_fields__
            if (value := getattr(change, name, None)) is not None
        }
        self.speculation = msgspec.structs.replace(self.speculation, **given)
        if change.temperature is not None:
            self.temperature = change.temperature
        # Whoever asks means the reasoning that is on the screen.
        if change.answer_now and self.has_begun:
            self.answer_now = True


class Generator:
    """Writes replies with one target context, n-grams, and draft models if there are any.

    The KV caches live on between replies: tokens that a prompt shares with those already there are
    not decoded again.
    """

    def __init__(
        self,
        target: Context,
        models: Sequence[Drafter] = (),
        calibrations: Mapping[str, Calibration] = MappingProxyType({}),
        checkpoint_bytes: int = CHECKPOINTS_MIB << 20,
        kept: Kept | None = None,
    ) -> None:
        """The first of `models` drafts unless another is asked for. `calibrations` are by
        their names; empty stands for n-grams alone. `kept` has what auto learnt in earlier starts.
        """
        self._target = target
        self._drafters = GuardedDrafters(models, can_draft=target.n_rollback != 0)
        self.cache = CacheState(target, self._drafters, checkpoint_bytes)
        self._planner = Planner(self._drafters, calibrations, kept)
        self._reading_ms = 0.0
        """Milliseconds that reading prompts has taken."""
        self._learning_ms = 0.0
        """Milliseconds that learning from the last round took: they are of the next one."""

    def close(self) -> None:
        self.cache.close()

    def keep(self) -> None:
        self._planner.keep()

    def would_read(self, asked: Asked, max_tokens: int | None) -> tuple[int, Sequence[int]]:
        """The first turn that a reply would have in the context, and the tokens from there on.
        Nothing changes. Raises PromptError, Cancelled."""
        cache, n_ctx = self.cache, self._target.n_ctx
        window = ContextWindow(asked, n_ctx, can_shift=cache.can_shift)
        window.fit(max_tokens or n_ctx, cache.first_turn, cache.tokens)
        _check_fits(window.tokens, n_ctx)
        return window.first_turn, window.tokens

    def reply(
        self,
        asked: Asked,
        sampling: Sampling,
        live: Live,
        *,
        seed: int,
        draws_drafts: bool = False,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        top: int = 0,
    ) -> Iterator[ReplyEvent]:
        """Prefill the prompt, then yield a Round for each pass, and a ReplyEnd at the end, also if
        the request is cancelled.

        If the context has no room for all of it, the oldest turns leave, before the reply and while
        it is written; a Window tells of each time. With `draws_drafts` more drafted tokens are
        accepted above temperature 0, and the reply depends on what is drafted, which depends on
        measured times; without, the seed decides it. Raises PromptError, DecodeError; a failing
        drafter ends speculation, never the reply.
        """
        prompt, parts = asked.tokens, asked.parts
        if not prompt:
            raise PromptError("the prompt is empty")
        live.has_begun = True
        began = time.perf_counter()
        prefill_ms: float | None = None
        rounds: list[RoundTimings] = []
        prefill = Prefill(0, 0, 0)
        reply = ReplyState(
            self._target,
            prompt,
            sampling,
            seed=seed,
            draws_drafts=draws_drafts,
            max_tokens=max_tokens,
            stop=stop,
            parts=parts,
            top=top,
        )
        try:
            n_ctx, can_shift = self._target.n_ctx, self.cache.can_shift
            window = ContextWindow(asked, n_ctx, can_shift=can_shift)
            goes_on = parts is not None and bool(parts.begun)
            yield from self._open(window, reply, live.speculation, goes_on=goes_on)
            # A recurrent state cannot be rewound: it goes back to where it was saved.
            saved = () if self._target.n_rollback is None else asked.boundaries()
            ends = [end - window.tokens_dropped for end in saved]
            for prefill in self._read(window.tokens[:-1], live.speculation, ends):
                yield prefill
            prefill_ms = ms_since(began)
            began = time.perf_counter()
            while reply.finish is None:
                reading_ms = self._reading_ms
                # Read once: a change from another thread waits for the next round.
                want = live.speculation
                reply.follow_temperature(live.temperature)
                self._drafters.follow(want)
                yield from self._make_room(window, want)
                given = yield from self._end_reasoning(live, reply, want)
                if self.cache.is_behind:
                    # Speculation was switched on: the drafter has yet to see these.
                    yield from self._read([*self.cache.tokens], want)
                check()
                # Reading again in mid-reply is no generation; all else since the last round is.
                began += (self._reading_ms - reading_ms) / 1000.0
                round_ = self._round(reply, want, len(rounds), given, began)
                began += round_.timings.total_ms / 1000.0
                rounds.append(round_.timings)
                failure = self._drafters.failure()
                if failure is not None:
                    yield SpeculationOff(failure)
                yield round_
        except Cancelled:
            reply.finish = FinishReason.CANCELLED
        timings = ReplyTimings(
            prefill_ms=ms_since(began) if prefill_ms is None else prefill_ms,
            prefill_tokens=prefill.done - prefill.reused,
            reused_tokens=prefill.reused,
            generation_ms=sum(one.total_ms for one in rounds),
            **sums(rounds),
        )
        yield reply.end(timings)

    def _round(
        self, reply: ReplyState, want: Speculation, index: int, given: tuple[int, ...], began: float
    ) -> Round:
        """One pass: look up, choose, draft, verify, accept, learn. `began` is when the round before
        ended, as `time.perf_counter` has it."""
        cache, drafters, planner = self.cache, self._drafters, self._planner
        started = time.perf_counter()
        length = want.n_draft_max if drafters.on else 0
        if length == AUTO:
            planner.catch_up()
        n_past, id_last, n_waiting = len(cache.tokens), reply.id_last, drafters.waiting
        room = max(0, min(cache.longest_draft, reply.tokens_left - 1))

        bounds, looking_up = planner.look_up_limits(want, room), time.perf_counter()
        found = look_up(cache.tokens, id_last, bounds)
        look_up_ms = ms_since(looking_up) if bounds.n_max > 0 else 0.0
        plan = planner.choose(want, found, n_past, room)
        proposal, draft_ms = plan.taken, look_up_ms
        if plan.n > 0 and not proposal:
            drafting, process_ms = time.perf_counter(), drafters.process_ms
            proposal = drafters.draft(n_past, id_last, plan.limits(want, reply.draws))
            draft_ms += ms_since(drafting) - (drafters.process_ms - process_ms)
        proposed_ms, process_ms = ms_since(started), drafters.process_ms

        verify_ms = cache.decode(id_last, proposal)
        sampling_began = time.perf_counter()
        tokens, path, n_tested, likely = reply.verify(proposal, cache.room)
        sample_ms = ms_since(sampling_began)
        cache.accept(path)
        total_ms = ms_since(began)

        round_ = Round(
            index=index,
            n_draft_max=plan.n if length == AUTO else length,
            drafted=self._recorded(proposal),
            n_tested=n_tested,
            n_accepted=len(path),
            tokens=tuple(tokens),
            n_past=len(cache.tokens),
            timings=RoundTimings(
                draft_ms=draft_ms,
                verify_ms=verify_ms,
                # Planning the round is part of it.
                process_ms=proposed_ms
                - draft_ms
                + (drafters.process_ms - process_ms)
                + self._learning_ms,
                sample_ms=sample_ms,
                total_ms=total_ms,
            ),
            auto=plan.state,
            given=given,
            likely=tuple(likely),
            is_plain_check=plan.is_plain_check,
        )
        learning = time.perf_counter()
        planner.observe(Seen(plan, round_, proposal, found, n_waiting, proposed_ms))
        self._learning_ms = ms_since(learning)
        return round_

    def _recorded(self, proposal: Proposal) -> tuple[DraftToken, ...]:
        piece = self._target.model.piece
        return tuple(
            DraftToken(
                guess.id,
                piece(guess.id).decode(errors="replace"),
                guess.probability,
                parent,
                proposal.drafter,
            )
            for guess, parent in zip(proposal.guesses, proposal.parents, strict=True)
        )

    def _open(
        self, window: ContextWindow, reply: ReplyState, want: Speculation, *, goes_on: bool
    ) -> Iterator[Window]:
        """Have turns leave for which the context has no room, and choose who drafts. Raises
        PromptError, Cancelled."""
        cache = self.cache
        before = window.fit(reply.tokens_left, cache.first_turn, cache.tokens)
        kv_kept = before is window.tokens or cache.shift(before, window.tokens)
        cache.first_turn = window.first_turn
        self._planner.new_reply(want, goes_on=goes_on)
        if window.first_turn > 0:
            yield Window(window.first_turn, window.tokens_dropped, kv_kept)
        _check_fits(window.tokens, self._target.n_ctx)

    def _read(
        self, tokens: Sequence[int], want: Speculation, boundaries: Sequence[int] = ()
    ) -> Iterator[Prefill]:
        """Bring the KV caches to exactly `tokens`, chunk by chunk. The draft model takes them in if
        it may draft; otherwise they wait for it, at no cost. A checkpoint is saved at the end and
        at `boundaries`, behind which a later prompt may differ. Raises DecodeError, Cancelled."""
        cache, n_batch = self.cache, self._target.n_batch
        started = time.perf_counter()
        reused = cache.resume(tokens)
        self._reading_ms += ms_since(started)
        yield Prefill(reused, len(tokens), reused)
        ends = [*sorted({end for end in boundaries if reused < end < len(tokens)}), len(tokens)]
        for start, end in zip([reused, *ends], ends, strict=False):
            for first in range(start, end, n_batch):
                # The time that the caller takes between two chunks does not count.
                started, last = time.perf_counter(), min(first + n_batch, end)
                check()
                cache.read(tokens[first:last])
                if want.n_draft_max != 0:
                    self._drafters.take_in()
                if last == end:
                    cache.save_checkpoint()
                self._reading_ms += ms_since(started)
                yield Prefill(last, len(tokens), reused)

    def _make_room(self, window: ContextWindow, want: Speculation) -> Iterator[Window | Prefill]:
        """Have the oldest turns leave when a reply has come to the end of the context."""
        cache = self.cache
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
        yield Window(window.first_turn, window.tokens_dropped, kv_kept)
        if not kv_kept:
            yield from self._read([*window.tokens[:-1], *written], want)

    def _end_reasoning(
        self, live: Live, reply: ReplyState, want: Speculation
    ) -> Stream[Prefill, None, tuple[int, ...]]:
        """If the user wants the answer now, read the tokens that end the reasoning as if they had
        been sampled. Returns them; none if nobody asked or there is no reasoning to end."""
        if not live.answer_now:
            return ()
        live.answer_now = False
        id_last = reply.id_last
        given = reply.end_reasoning(context_left=self.cache.room)
        if given:
            yield from self._read([*self.cache.tokens, id_last, *given[:-1]], want)
        return given


def _check_fits(prompt: Sequence[int], n_ctx: int) -> None:
    if len(prompt) >= n_ctx:
        raise PromptError(
            f"the prompt has {len(prompt):,} tokens, the context holds {n_ctx:,}; shorten it, or "
            "load the pair with a larger context (engine.n_ctx)"
        )
