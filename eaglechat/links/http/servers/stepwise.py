"""vLLM and SGLang: a chunk is one step of their engine, unless the reader lags behind and gets
several steps in a chunk. So origins are provisional while a reply streams. At its end vLLM lists
the steps, and SGLang sends a histogram of how many drafted tokens its steps accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eaglechat.links.http.servers.base import (
    LONGEST_DRAFT,
    ReasoningSplitter,
    ReplyReader,
    TimedEnding,
    most_tokens,
    templated_body,
    without_times,
)
from eaglechat.links.http.servers.chunks import Chunk, SpeculativeDecoding, Written
from eaglechat.wire.capabilities import Capabilities
from eaglechat.wire.protocol import Chat
from eaglechat.wire.records import DraftToken, Origin, Part, Prefill, ReplyEnd, Round, Token


class StepwiseServer:
    """What both have in common. `n_draft_max` is the longest draft seen, 0 before the first.
    `drafts` is False if the server says that it has no draft, None if it does not say."""

    name = ""
    extras: dict[str, Any] = {}
    can = Capabilities(origins=True, goes_on_from_text=True)

    def __init__(self, *, drafts: bool | None) -> None:
        self.drafts = drafts
        self.n_draft_max = 0

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        sampling = chat.sampling
        # min_p is left out: vLLM refuses it when it speculates.
        return templated_body(chat, model, seed) | {
            "top_k": sampling.top_k or -1,
            "repetition_penalty": sampling.repeat_penalty,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **self.extras,
        }

    def reader(self, chat: Chat) -> StepReader:
        return StepReader(self, chat)


class VLLM(StepwiseServer):
    """Started with `--per-request-spec-decode-metrics detailed`, its origins are exact in the
    end."""

    name = "vLLM"


class SGLang(StepwiseServer):
    """Its histogram of accepted tokens tells in the end whether the chunks were its steps."""

    name = "SGLang"
    extras = {"return_spec_tokens_details": True}


@dataclass(frozen=True)
class _Step:
    """So many tokens that came at once: their text, which is not divided among them."""

    count: int
    texts: tuple[Written, ...]
    ms: float


class StepReader(ReplyReader):
    """A round of each chunk."""

    def __init__(self, kind: StepwiseServer, chat: Chat) -> None:
        self._kind = kind
        self._ending, self._splitter = TimedEnding(chat), ReasoningSplitter()
        self._steps: list[_Step] = []
        self._rounds: list[Round] = []
        self._counted = self._told = 0
        self._detail: SpeculativeDecoding | None = None
        self._histogram: list[int] | None = None

    def take(self, chunk: Chunk) -> Iterator[Prefill | Round]:
        self._ending.take(chunk)
        if chunk.metrics is not None:
            self._detail = chunk.metrics.speculative_decoding or self._detail
        if chunk.sglext is not None and chunk.sglext.spec_tokens_details is not None:
            self._histogram = chunk.sglext.spec_tokens_details.spec_correct_drafts_histogram
        written = chunk.written
        if not written:
            return
        texts = tuple(self._splitter.split(written))
        counted = chunk.usage.completion_tokens if chunk.usage else None
        # If the count does not grow, the text belongs to tokens that were counted before.
        count = min(max((counted or 0) - self._counted, 1), most_tokens(written))
        self._counted += count
        step = _Step(count, texts, self._ending.lap())
        self._steps.append(step)
        is_plain = self._kind.drafts is False or not self._told
        n_drafted = 0 if is_plain and count == 1 else max(self._kind.n_draft_max, count - 1)
        yield self._add(step, count - 1, n_drafted, is_provisional=self._kind.drafts is not False)

    def rest(self) -> Iterator[Round]:
        if left := self._splitter.rest():
            last = self._steps[-1]
            self._steps[-1] = replace(last, texts=(*last.texts, *left))
            index, n_past = len(self._rounds), self._rounds[-1].n_past
            tokens = self._append(left)
            yield Round(index, 0, (), 0, 0, tokens, n_past, without_times(0.0))

    def settled(self) -> Sequence[Round] | None:
        """All rounds with exact origins, if the server's last chunk allows it."""
        if self._detail is not None:
            return self._from_detail(self._detail)
        if self._histogram is not None:
            seen = Counter(round_.n_accepted for round_ in self._rounds if round_.drafted)
            counts = Counter({n: count for n, count in enumerate(self._histogram) if count})
            if seen == counts:
                return [replace(round_, provisional=False) for round_ in self._rounds]
        return None

    def end(self, seed: int, *, is_cancelled: bool) -> ReplyEnd:
        first = self._steps[0].count if self._steps else 1
        return self._ending.end(self._counted, first, seed, is_cancelled=is_cancelled)

    def _from_detail(self, detail: SpeculativeDecoding) -> Sequence[Round] | None:
        if len(detail.per_step_accepted) != len(detail.per_step_drafted):
            return None
        counts = list(zip(detail.per_step_accepted, detail.per_step_drafted, strict=True))
        if not all(
            0 <= n_accepted <= n_drafted <= LONGEST_DRAFT for n_accepted, n_drafted in counts
        ):
            return None
        if not counts or counts[0][1]:
            # The first token comes from the prompt, not from a step.
            counts.insert(0, (0, 0))
        total = self._ending.usage.completion_tokens or self._counted
        cut_off = sum(n_accepted + 1 for n_accepted, _ in counts) - total
        if not 0 <= cut_off <= counts[-1][0]:
            return None
        self._kind.n_draft_max = max(self._kind.n_draft_max, *detail.per_step_drafted, 0)
        # By token; all of a chunk's text and time is given to its first token.
        nothing: tuple[tuple[Written, ...], float] = ((), 0.0)
        texts = iter(
            [
                own
                for step in self._steps
                for own in [(step.texts, step.ms), *[nothing] * (step.count - 1)]
            ]
        )
        self._rounds, self._told = [], 0
        for n_accepted, n_drafted in counts:
            count = min(n_accepted + 1, total - self._told)
            own = [next(texts, nothing) for _ in range(count)]
            pieces = tuple(piece for written, _ in own for piece in written)
            step = _Step(count, pieces, sum(ms for _, ms in own))
            self._add(step, min(n_accepted, count), n_drafted, is_provisional=False)
        # Text of a chunk whose count did not grow: no token is left for it.
        self._append([piece for written, _ in texts for piece in written])
        return self._rounds

    def _append(self, left: Sequence[Written]) -> tuple[Token, ...]:
        """Append texts to the last round, as tokens of unknown origin."""
        tokens = tuple(Token(None, text, Origin.UNKNOWN, part=part) for text, part in left)
        last = self._rounds[-1]
        self._rounds[-1] = replace(last, tokens=(*last.tokens, *tokens))
        return tokens

    def _add(self, step: _Step, n_accepted: int, n_drafted: int, *, is_provisional: bool) -> Round:
        own = Origin.BONUS if n_accepted == n_drafted else Origin.CORRECTION
        own = own if n_drafted else Origin.PLAIN
        origins = [Origin.ACCEPTED] * n_accepted + [own] * (step.count - n_accepted)
        written: list[tuple[str, Part | None]] = [*step.texts]
        written += [("", None)] * (step.count - len(written))
        # More texts than tokens: one token has text of two parts of the reply.
        origins += origins[-1:] * (len(written) - len(origins))
        self._told += step.count
        round_ = Round(
            index=len(self._rounds),
            n_draft_max=max(self._kind.n_draft_max, n_drafted),
            drafted=tuple(DraftToken(None, None, None, place - 1) for place in range(n_drafted)),
            n_tested=min(step.count, n_drafted),
            n_accepted=n_accepted,
            tokens=tuple(
                Token(None, text, origin, part=part)
                for (text, part), origin in zip(written, origins, strict=True)
            ),
            n_past=self._ending.n_past(self._told),
            timings=without_times(step.ms),
            provisional=is_provisional,
        )
        self._rounds.append(round_)
        return round_
