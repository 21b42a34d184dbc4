"""One reply in the making: what the target samples, the text it adds, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from eaglechat.engine.generation.text import TextStream
from eaglechat.engine.llama.objects import Context
from eaglechat.engine.llama.sampler import REPEAT_LAST_N, Sampler
from eaglechat.wire.protocol import SEED_LIMIT, Sampling
from eaglechat.wire.records import (
    DraftToken,
    FinishReason,
    Origin,
    Prefill,
    ReplyEnd,
    ReplyTimings,
    Round,
    Token,
)


class ReplyState:
    """The target's side of one reply: sampling, text, limits, and what it has cost so far."""

    def __init__(
        self,
        target: Context,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        max_tokens: int | None,
        stop: Sequence[str],
    ) -> None:
        self.id_last = prompt[-1]
        self.finish: FinishReason | None = None
        self.started = time.perf_counter()
        self.prefill_ms = 0.0
        self.prefill = Prefill(0, 0, 0)
        self.rounds = 0
        self.draft_failed = False
        self.trouble: str | None = None
        self._target = target
        self._sampling = sampling
        self._seed = seed
        self._max_tokens = max_tokens
        self._text = TextStream(stop)
        self._recent = list(prompt[-REPEAT_LAST_N:])
        self._n_tokens = 0
        self._draft_ms = self._verify_ms = self._process_ms = self._sample_ms = 0.0
        self._sampler = self._make_sampler(seed)

    @property
    def tokens_left(self) -> int:
        """Tokens this reply may still grow by."""
        limit = self._target.n_ctx if self._max_tokens is None else self._max_tokens
        return limit - self._n_tokens

    def follow_temperature(self, temperature: float) -> None:
        """Sample at another temperature from here on."""
        if temperature == self._sampling.temperature:
            return
        self._sampling = msgspec.structs.replace(self._sampling, temperature=temperature)
        self._sampler.close()
        self._sampler = self._make_sampler((self._seed + self._n_tokens) % (SEED_LIMIT + 1))

    def verify(
        self, drafted: Sequence[DraftToken], context_left: int
    ) -> tuple[list[Token], int, int]:
        """Sample the target's tokens row by row: the tokens, draft tokens tested, and accepted."""
        tokens: list[Token] = []
        n_tested = n_accepted = 0
        for row in range(len(drafted) + 1):
            id = self._sampler.sample(self._target, row)
            origin = _origin(id, row, drafted)
            n_tested += row < len(drafted)
            n_accepted += origin is Origin.ACCEPTED
            drafter = drafted[row].drafter if origin is Origin.ACCEPTED else None
            tokens.append(Token(id, self._write(id), origin, drafter))
            if self.finish is None and len(tokens) >= context_left:
                self.finish = FinishReason.CONTEXT
            if self.finish is not None or origin is not Origin.ACCEPTED:
                break
        return tokens, n_tested, n_accepted

    def note(self, round_: Round) -> Round:
        """Count a round in."""
        self.rounds += 1
        self._draft_ms += round_.timings.draft_ms
        self._verify_ms += round_.timings.verify_ms
        self._process_ms += round_.timings.process_ms
        self._sample_ms += round_.timings.sample_ms
        return round_

    def end(self) -> ReplyEnd:
        assert self.finish is not None
        self._sampler.close()
        return ReplyEnd(
            finish_reason=self.finish,
            seed=self._seed,
            tokens=self._n_tokens,
            tail=self._text.flush(),
            timings=ReplyTimings(
                prefill_ms=self.prefill_ms,
                prefill_tokens=self.prefill.done - self.prefill.reused,
                reused_tokens=self.prefill.reused,
                generation_ms=ms_since(self.started),
                draft_ms=self._draft_ms,
                verify_ms=self._verify_ms,
                process_ms=self._process_ms,
                sample_ms=self._sample_ms,
            ),
        )

    def _write(self, id: int) -> str:
        """The text a token adds; sets `finish` when the reply ends with it."""
        self._n_tokens += 1
        self._recent.append(id)
        if self._target.model.is_end(id):
            self.finish = FinishReason.STOP
            return ""
        text = self._text.push(self._target.model.piece(id))
        if self._text.stopped:
            self.finish = FinishReason.STOP
        elif self.tokens_left <= 0:
            self.finish = FinishReason.LENGTH
        return text

    def _make_sampler(self, seed: int) -> Sampler:
        sampling = self._sampling
        sampler = Sampler(
            self._target.model,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repeat_penalty=sampling.repeat_penalty,
            seed=seed,
        )
        for token in self._recent[-REPEAT_LAST_N:]:
            sampler.accept(token)
        return sampler


def _origin(id: int, row: int, drafted: Sequence[DraftToken]) -> Origin:
    if not drafted:
        return Origin.PLAIN
    if row == len(drafted):
        return Origin.BONUS
    return Origin.ACCEPTED if id == drafted[row].id else Origin.CORRECTION


def ms_since(started: float) -> float:
    """Milliseconds since a `time.perf_counter()`."""
    return (time.perf_counter() - started) * 1000.0
