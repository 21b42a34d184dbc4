"""The target's side of a reply: which tokens it samples, their text, and when the reply ends. Text
that is on the screen never has to be taken back."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from msgspec.structs import replace

from eaglechat.engine.drafters.proposal import Draws, Proposal
from eaglechat.engine.llama.objects import Context
from eaglechat.engine.llama.sampler import REPEAT_LAST_N, Sampler
from eaglechat.engine.templates.dialect import ANSWER_ONLY, ReplyParts
from eaglechat.wire.part_stream import PartStream, Segment, beginning, joined
from eaglechat.wire.protocol import Sampling
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


class ReplyText:
    """The text of a reply, token by token, and the part of the reply that each belongs to.

    Bytes of an incomplete character wait for the rest of it. Text that may begin a stop string
    waits until it is clear that it does not. Bytes that are not UTF-8 become U+FFFD.

    The text of a token belongs to one part. If a token ends one part and begins the next, the text
    of the next part comes with the token after it.
    """

    def __init__(self, parts: PartStream | None = None, stop: Sequence[str] = ()) -> None:
        """Without `parts` all of it is the answer."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(text for text in stop if text)
        self._held = ""
        self.stopped = False
        """True once a stop string was seen; the text ends before it."""
        self._parts = parts or ANSWER_ONLY.begin("")
        self._is_plain = self._parts.is_plain
        self._waiting: list[Segment] = []

    @property
    def part(self) -> Part | None:
        return self._parts.part

    def push(self, piece: bytes) -> tuple[str, Part | None]:
        """The text that is certain, now that a token's bytes have come, and the token's part: None
        for markers and headers."""
        if self._is_plain:
            return self._certain(piece), Part.ANSWER
        self.give(piece)
        if self._waiting:
            part, certain = self._waiting.pop(0)
            return certain, part
        swallowed = piece and not self._parts.holds
        return "", None if swallowed else self._parts.part

    def give(self, piece: bytes) -> None:
        """Continue as if a token with these bytes had been written. Its text, if any, comes with
        the next token."""
        self._waiting = joined([*self._waiting, *self._parts.push(self._certain(piece))])

    def flush(self) -> list[Segment]:
        """The text that was held back, at the end of the reply, by part."""
        held = "" if self.stopped else self._held + self._decoder.decode(b"", final=True)
        rest = [*self._waiting, *self._parts.push(held), *self._parts.flush()]
        self._waiting, self._held = [], ""
        return joined(rest)

    def _certain(self, piece: bytes) -> str:
        """The text before what may be a stop string or a part of a character."""
        text = self._held + self._decoder.decode(piece)
        ends = [at for at in (text.find(one) for one in self._stop) if at >= 0]
        self.stopped = bool(ends)
        end = min(ends) if ends else len(text) - beginning(text, self._stop)
        self._held = text[end:]
        return text[:end]


class ReplyState:
    def __init__(
        self,
        target: Context,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        draws_drafts: bool = False,
        max_tokens: int | None,
        stop: Sequence[str],
        parts: ReplyParts | None = None,
        top: int = 0,
    ) -> None:
        self.id_last = prompt[-1]
        self.finish: FinishReason | None = None
        self._target = target
        self._seed, self._draws_drafts = seed, draws_drafts
        self._max_tokens = max_tokens
        self._top = min(top, target.model.n_vocab)
        self._text = ReplyText(parts.stream if parts else None, stop)
        self._written = parts.written if parts else target.model.piece
        self._closing = parts.closing if parts else ()
        for token in parts.begun if parts else ():
            self._text.push(self._written(token))
        self._recent = list(prompt[-REPEAT_LAST_N:])
        self._sampler = Sampler(sampling, seed, self._recent)
        self._n_prompt = len(prompt)
        self._n_tokens = 0
        self._tail: list[Segment] = []

    @property
    def tokens_left(self) -> int:
        limit = self._target.n_ctx if self._max_tokens is None else self._max_tokens
        return limit - self._n_tokens

    def follow_temperature(self, temperature: float) -> None:
        if temperature != self._sampler.sampling.temperature:
            self._sampler.sampling = replace(self._sampler.sampling, temperature=temperature)

    @property
    def draws(self) -> Draws | None:
        """What the next draft may draw with; None if it is to propose its likeliest tokens."""
        temperature = self._sampler.sampling.temperature
        may = self._draws_drafts and temperature > 0.0
        return Draws(self._sampler.random, temperature) if may else None

    def verify(
        self, proposal: Proposal, context_left: int
    ) -> tuple[list[Token], list[int], int, list[tuple[Likely, ...]]]:
        """Sample the target's token behind the last one. While that is a proposed token, it is
        accepted, and the token behind it is sampled too. In the batch just decoded, row 0 is that
        of the last token, row 1 + i that of proposed token i.

        Returns the sampled tokens, the indices of the accepted ones in the proposal, how often the
        target was asked about proposed tokens, and for each sampled token the target's likeliest in
        its place, if the request asked for them."""
        tokens: list[Token] = []
        path: list[int] = []
        likely: list[tuple[Likely, ...]] = []
        n_tested, at = 0, LAST_TOKEN
        while True:
            children = proposal.children(at)
            # The place in the whole text, whatever of it has left the context.
            where = self._target, 1 + at, self._n_prompt + self._n_tokens
            first = proposal.guesses[children[0]] if children else None
            drawn = (first.id, first.shares) if first and first.shares else None
            if self._top:
                drafted = [proposal.ids[index] for index in children]
                id, seen = self._sampler.look(*where, drawn, top=self._top, drafted=drafted)
                likely.append(seen)
            else:
                id = self._sampler.sample(*where, drawn)
            n_tested += bool(children)
            child = next((index for index in children if proposal.ids[index] == id), None)
            drafter = proposal.drafter if child is not None else None
            text, part = self._write(id)
            if child is not None:
                origin = Origin.ACCEPTED
            elif children:
                origin = Origin.CORRECTION
            else:
                origin = Origin.BONUS if proposal else Origin.PLAIN
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
        return tokens, path, n_tested, likely

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
