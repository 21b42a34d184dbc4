"""The speculative loop: draft, verify, accept, round after round.

Verification is sample-and-match: the target samples its own token after each row of the batch
[last token, *proposal]; as long as that token is a proposed one, its row is the next to look at.
Every emitted token is thus drawn from the target's distribution by the target's sampler, whatever
was proposed and at any temperature. Source: llama.cpp's examples/speculative-simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from eaglechat.engine.auto.auto_length import AutoLength
from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.drafters.base import Drafter
from eaglechat.engine.generation.answer_now import end_reasoning
from eaglechat.engine.generation.bookkeeping import ReplyBooks
from eaglechat.engine.generation.cache_state import CacheState
from eaglechat.engine.generation.drafting import Drafting
from eaglechat.engine.generation.live import Live
from eaglechat.engine.generation.prefill import Reader
from eaglechat.engine.generation.reply import ReplyState
from eaglechat.engine.generation.room import fit, make_room, open_window
from eaglechat.engine.generation.window import ContextWindow, Turns
from eaglechat.engine.llama.objects import Context
from eaglechat.engine.templates.dialect import ReplyParts
from eaglechat.wire.errors import PromptError
from eaglechat.wire.load_options import CHECKPOINTS_MIB
from eaglechat.wire.protocol import Sampling, Speculation
from eaglechat.wire.records import FinishReason, Prefill, ReplyEnd, Round, SpeculationOff, Window

ReplyEvent = Window | Prefill | Round | SpeculationOff | ReplyEnd


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
        checkpoint_bytes: int = CHECKPOINTS_MIB << 20,
    ) -> None:
        self._target = target
        self._drafting = Drafting(drafter)
        self._cache = CacheState(target, self._drafting, checkpoint_bytes)
        self._auto = AutoLength(calibration)

    def close(self) -> None:
        self._cache.close()

    @property
    def cached(self) -> Sequence[int]:
        """The tokens whose KV the target holds."""
        return tuple(self._cache.tokens)

    @property
    def checkpoints(self) -> tuple[int, int]:
        """How many checkpoints of a recurrent state there are, and their bytes."""
        return len(self._cache.checkpoints), self._cache.checkpoints.n_bytes

    def would_read(
        self, prompt: Sequence[int], turns: Turns, max_tokens: int | None
    ) -> tuple[int, Sequence[int]]:
        """What a reply to `prompt` would begin with: the first turn in the context, and the tokens
        from there. Nothing changes. Raises PromptError."""
        cache, n_ctx = self._cache, self._target.n_ctx
        window = ContextWindow(prompt, turns, n_ctx, can_shift=cache.can_shift)
        fit(window, cache, max_tokens or n_ctx)
        _check_fits(window.tokens, n_ctx)
        return window.first_turn, window.tokens

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
        parts: ReplyParts | None = None,
        top: int = 0,
        cancelled: Callable[[], bool] = lambda: False,
        boundaries: Callable[[], Sequence[int]] = tuple,
    ) -> Iterator[ReplyEvent]:
        """Prefill `prompt`, then yield a Round for each pass and a ReplyEnd at the end.

        Where the context has no room for all of it, the oldest of its `turns` leave, before the
        reply and while it is written; a Window says so.
        `boundaries` are positions in the prompt up to which the next one may be the same; they are
        asked for only where the target's state cannot be rewound.
        Raises PromptError, DecodeError; a failing drafter ends speculation, never the reply.
        """
        if not prompt:
            raise PromptError("the prompt is empty")
        target, cache = self._target, self._cache
        books = ReplyBooks(self._drafting, self._auto, target.model.piece)
        window = ContextWindow(prompt, turns, target.n_ctx, can_shift=cache.can_shift)
        reader = Reader(cache, self._drafting, self._auto, target.n_batch, cancelled)
        self._auto.new_reply()
        self._drafting.new_reply(live.speculation)
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
            yield from open_window(window, cache, reply.tokens_left)
            _check_fits(window.tokens, target.n_ctx)
            left = window.tokens_left
            ends = [] if target.n_rollback is None else [end - left for end in boundaries()]
            for progress in reader.read(window.tokens[:-1], live.speculation, ends):
                books.note_prefill(progress)
                yield progress
            if reader.stopped:
                reply.finish = FinishReason.CANCELLED
            books.begin_rounds(reader.ms)
            while reply.finish is None:
                # Read once: a change from another thread waits for the next round.
                speculation = live.speculation
                reply.follow_temperature(live.temperature)
                self._drafting.follow(speculation)
                yield from make_room(window, cache, reader, speculation)
                given = yield from end_reasoning(live, reply, cache, reader, speculation)
                yield from reader.catch_up(speculation)
                if reader.stopped or cancelled():
                    reply.finish = FinishReason.CANCELLED
                    break
                round_ = self._round(reply, books, speculation, given)
                failure = self._drafting.failure() or self._auto.failure()
                if failure is not None:
                    yield SpeculationOff(failure)
                yield round_
            yield reply.end(books.timings(reader.ms))

    def _round(
        self,
        reply: ReplyState,
        books: ReplyBooks,
        speculation: Speculation,
        given: tuple[int, ...],
    ) -> Round:
        """One pass: draft, verify, accept."""
        cache, drafting = self._cache, self._drafting
        n_past = len(cache.tokens)
        room = min(cache.longest_draft, reply.tokens_left - 1)
        book = books.begin_round(speculation, n_past, room)

        proposal = drafting.propose(n_past, reply.id_last, book.limits)
        book.drafted(proposal)
        book.decoded(cache.decode(reply.id_last, proposal))
        verdict = reply.verify(proposal, context_left=cache.room)
        book.verified(verdict)
        cache.accept(verdict.path)

        return books.end_round(book, given)


def _check_fits(prompt: Sequence[int], n_ctx: int) -> None:
    if len(prompt) >= n_ctx:
        raise PromptError(
            f"the prompt has {len(prompt):,} tokens, the context holds {n_ctx:,}; shorten it, or "
            "load the pair with a larger context (engine.n_ctx)"
        )
