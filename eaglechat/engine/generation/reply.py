"""The target's side of a reply: which tokens it samples, their text, and when the reply ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from eaglechat.engine.drafters.base import Proposal
from eaglechat.engine.generation.text import ReplyText
from eaglechat.engine.llama.objects import Context
from eaglechat.engine.llama.sampler import REPEAT_LAST_N, Sampler
from eaglechat.engine.templates.dialect import ReplyParts
from eaglechat.wire.part_stream import Segment
from eaglechat.wire.protocol import SEED_LIMIT, Sampling
from eaglechat.wire.records import (
    LAST_TOKEN,
    FinishReason,
    Likely,
    Origin,
    Part,
    ReplyEnd,
    ReplyTimings,
    Token,
)


class Verdict(NamedTuple):
    """What the target accepted of a proposal."""

    tokens: tuple[Token, ...]
    """The sampled tokens: the accepted ones, then one of the target's own."""
    path: tuple[int, ...]
    """Indices of the accepted tokens in the proposal, each a child of the one before."""
    n_tested: int
    """How often the target was asked about proposed tokens: once for each accepted one, and once
    more if it rejected one."""
    likely: tuple[tuple[Likely, ...], ...] = ()
    """For each sampled token, the target's likeliest tokens in its place; empty unless asked
    for."""


class ReplyState:
    """One reply in the making."""

    def __init__(
        self,
        target: Context,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        max_tokens: int | None,
        stop: Sequence[str],
        parts: ReplyParts | None = None,
        top: int = 0,
    ) -> None:
        self.id_last = prompt[-1]
        self.finish: FinishReason | None = None
        self._target = target
        self._sampling = sampling
        self._seed = seed
        self._max_tokens = max_tokens
        self._top = min(top, target.model.n_vocab)
        self._text = ReplyText(parts.stream if parts else None, stop)
        self._written = parts.written if parts else target.model.piece
        self._closing = parts.closing if parts else ()
        for token in parts.begun if parts else ():
            self._text.push(self._written(token))
        self._recent = list(prompt[-REPEAT_LAST_N:])
        self._n_tokens = 0
        self._tail: list[Segment] = []
        self._sampler = self._make_sampler(seed)

    @property
    def tokens_left(self) -> int:
        """Tokens that this reply may still have."""
        limit = self._target.n_ctx if self._max_tokens is None else self._max_tokens
        return limit - self._n_tokens

    def follow_temperature(self, temperature: float) -> None:
        """Sample at this temperature from now on."""
        if temperature == self._sampling.temperature:
            return
        self._sampling = msgspec.structs.replace(self._sampling, temperature=temperature)
        self._sampler.close()
        self._sampler = self._make_sampler((self._seed + self._n_tokens) % (SEED_LIMIT + 1))

    def verify(self, proposal: Proposal, context_left: int) -> Verdict:
        """Sample the target's token behind the last one. While that is a proposed token, it is
        accepted, and the token behind it is sampled too. In the batch just decoded, row 0 is that
        of the last token, row 1 + i that of proposed token i."""
        tokens: list[Token] = []
        path: list[int] = []
        likely: list[tuple[Likely, ...]] = []
        n_tested, at = 0, LAST_TOKEN
        while True:
            children = proposal.children(at)
            if self._top:
                drafted = [proposal[index].id for index in children]
                id, seen = self._sampler.look(self._target, 1 + at, self._top, drafted)
                likely.append(seen)
            else:
                id = self._sampler.sample(self._target, 1 + at)
            n_tested += bool(children)
            child = drafter = None
            for index in children:
                if proposal[index].id == id:
                    child, drafter = index, proposal[index].drafter
            text, part = self._write(id)
            origin = _origin(proposal, children, child)
            tokens.append(Token(id, text, origin, drafter, part))
            self.id_last = id
            if child is not None:
                path.append(child)
                at = child
            if self.finish is None and len(tokens) >= context_left:
                self.finish = FinishReason.CONTEXT
            if self.finish is not None or child is None:
                break
        if self.finish is not None:
            tokens[-1] = self._with_held(tokens[-1])
        return Verdict(tuple(tokens), tuple(path), n_tested, tuple(likely))

    def end_reasoning(self, context_left: int) -> tuple[int, ...]:
        """Continue the reply with the tokens that end the reasoning, and return them; none if the
        reply is not reasoning, its template cannot end reasoning, or the context is full."""
        if self._text.part is not Part.REASONING or not 0 < len(self._closing) < context_left:
            return ()
        for token in self._closing:
            self._text.give(self._written(token))
        self.id_last = self._closing[-1]
        return self._closing

    def end(self, timings: ReplyTimings) -> ReplyEnd:
        assert self.finish is not None
        held = self._tail or self._text.flush()
        return ReplyEnd(
            finish_reason=self.finish,
            seed=self._seed,
            tokens=self._n_tokens,
            tail="".join(text for _, text in held),
            timings=timings,
            tail_part=held[-1][0] if held else None,
        )

    def _with_held(self, last: Token) -> Token:
        """The last token with what is held back of its part, or of a part before the tail's: a
        reply's tail is of one part."""
        self._tail = self._text.flush()
        if len(self._tail) < 2 or (last.text and last.part is not self._tail[0][0]):
            return last
        (part, text), *self._tail = self._tail
        return replace(last, text=last.text + text, part=part)

    def close(self) -> None:
        self._sampler.close()

    def _write(self, id: int) -> tuple[str, Part | None]:
        """The text that a token adds, and its part. Sets `finish` if the reply ends with it."""
        self._n_tokens += 1
        self._recent.append(id)
        if self._target.model.is_end(id):
            self.finish = FinishReason.STOP
            return "", None
        text, part = self._text.push(self._written(id))
        if self._text.stopped:
            self.finish = FinishReason.STOP
        elif self.tokens_left <= 0:
            self.finish = FinishReason.LENGTH
        return text, part

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


def _origin(proposal: Proposal, children: Sequence[int], child: int | None) -> Origin:
    if not proposal:
        return Origin.PLAIN
    if not children:
        return Origin.BONUS
    return Origin.CORRECTION if child is None else Origin.ACCEPTED
