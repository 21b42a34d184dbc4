"""A streamed reply of any OpenAI-compatible server: its text as it comes, and what the server
counted at its end. Who counts drafted tokens there: `Chunk.draft_counts`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from eaglechat.links.http.answers import count
from eaglechat.links.http.chunks import Characters, Chunk
from eaglechat.wire.part_stream import Mode, PartStream, Segment
from eaglechat.wire.protocol import AnyEvent, Chat, Done, Progress, Settled
from eaglechat.wire.records import (
    DraftToken,
    FinishReason,
    Origin,
    Part,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    Token,
)
from eaglechat.wire.stats import DrafterStats, SpeculationStats, stats_of

_LIMITS = ("length", "max_tokens", "max_output_tokens", "model_length")
"""Reasons of servers for a reply that ends at a limit."""
_NEARLY = 64
"""A context counts as full this many tokens before its end: a server keeps some for its drafts."""
_TOKENS_WITHOUT_TEXT = 64

_OPENS, _CLOSES = "<think>", "</think>"
_MODES = {
    "start": Mode(None, ((_OPENS, "reasoning"),), otherwise="answer"),
    "begun": Mode(Part.REASONING, ((_CLOSES, "after"),)),
    "reasoning": Mode(Part.REASONING, ((_CLOSES, "after"),), drops_space=True),
    "after": Mode(Part.ANSWER, drops_space=True),
    "answer": Mode(Part.ANSWER),
}
"""Reasoning that a server leaves in the text of its reply."""


def most_tokens(segments: Iterable[Segment]) -> int:
    """The most tokens that a chunk with these texts may count for: one per character, and 64
    without text. A higher count of a server is not believed."""
    return _TOKENS_WITHOUT_TEXT + sum(len(text) for _, text in segments)


class Reply:
    """Tells the client each chunk as a round, whose tokens are of unknown origin. It has one token
    where the server does not count them as it goes: most send a chunk for each."""

    def __init__(self, chat: Chat, say: Callable[[AnyEvent], None]) -> None:
        self._characters = {part: Characters() for part in Part}
        self._splitter = ReasoningSplitter()
        self.is_whole = False
        """Whether the server has said that the reply ended."""
        self.id, self._chat, self._say = chat.id, chat, say
        self._rounds: list[Round] = []
        """What the client has been told."""
        self._reason, self._usage = "", dict[str, Any]()
        self._draft_counts: tuple[str, DrafterStats] | None = None
        self._n_tokens = self._n_first = 0
        """Tokens that came, and those of them that came with the first text."""
        self._asked = self._first = self._last = time.monotonic()
        """When the reply was asked for, and when its first and its last text came."""

    @property
    def has_begun(self) -> bool:
        """Whether the client has been told some of its text."""
        return bool(self._rounds)

    def take(self, chunk: Chunk) -> None:
        self.is_whole = self.is_whole or chunk.is_last
        self._usage = chunk.usage or self._usage
        self._draft_counts = chunk.draft_counts or self._draft_counts
        self._reason = chunk.reason or self._reason
        # Nothing follows a reason, so what is half of a character stays that.
        ends = [(part, "") for part in Part] if chunk.reason else []
        whole = [
            (part, self._characters[part].push(piece, is_last=not piece))
            for part, piece in [*chunk.pieces, *ends]
        ]
        self._read(chunk, [(part, text) for part, text in whole if text])

    def flush(self) -> None:
        """Tell the client what was held back; no more chunks come, for whatever reason."""
        if held := self._splitter.rest():
            self._text_round(held, 0.0)

    def done(self, seed: int, n_ctx: int, *, is_cancelled: bool) -> Done:
        """The end of the reply, in a context of `n_ctx` tokens (0 if that is not known). The client
        is told all rounds again if only the end tells reasoning from answer."""
        if rounds := parted_late(self._rounds):
            self._rounds = rounds
            self._say(Progress(id=self.id, step=Settled(tuple(rounds))))
        tokens, timings = self._totals()
        end = ReplyEnd(FinishReason.STOP, seed, tokens, tail="", timings=timings)
        reason = FinishReason.STOP
        if is_cancelled:
            reason = FinishReason.CANCELLED
        elif self._reason in _LIMITS:
            most = self._chat.max_tokens
            is_asked = most is not None and tokens >= most
            is_full = not is_asked and 0 < n_ctx <= end.n_past + _NEARLY
            # Else the server ended it at a limit of its own.
            reason = FinishReason.CONTEXT if is_full else FinishReason.LENGTH
        end = replace(end, finish_reason=reason)
        return Done(id=self.id, end=end, stats=self._stats())

    # A server that counts by the round has these otherwise

    def _read(self, chunk: Chunk, segments: list[Segment]) -> None:
        """Read a chunk with these texts."""
        if not segments:
            return
        now = time.monotonic()
        if not self._n_tokens:
            self._first = self._last = now
        # If the count does not grow, the text belongs to tokens that were counted before.
        counted = count(chunk.usage, "completion_tokens")
        new = min(max(counted - self._n_tokens, 1), most_tokens(segments))
        self._n_tokens += new
        self._n_first = self._n_first or new
        segments = self._splitter.split(segments)
        part = segments[-1][0] if segments else None
        self._text_round([*segments, *[(part, "")] * (new - len(segments))], now - self._last)
        self._last = now

    def _totals(self) -> tuple[int, ReplyTimings]:
        """The tokens of the reply, and its times as they were measured here. The time that the
        first tokens took cannot be told from that of the prompt: they are given the mean time of
        the others."""
        cached = count(self._usage, "prompt_tokens_details", "cached_tokens")
        tokens = self._n_written
        n_first = self._n_first or 1
        share_timed = (tokens - n_first) / tokens if tokens > n_first else 1.0
        first = self._first if self._n_tokens else time.monotonic()
        return tokens, ReplyTimings(
            prefill_ms=(first - self._asked) * 1000.0,
            prefill_tokens=max(self._n_prompt - cached, 0),
            reused_tokens=cached,
            generation_ms=(self._last - self._first) * 1000.0 / share_timed,
        )

    def _stats(self) -> SpeculationStats:
        """The statistics of the rounds, with what the server counted over the whole reply if it did
        not count by the round."""
        of_rounds = stats_of(self._rounds)
        if of_rounds.tested or self._draft_counts is None:
            return of_rounds
        kind, own = self._draft_counts
        # mlx-vlm also counts tokens that it accepted behind the end of the reply.
        accepted = min(own.accepted, own.drafted, self._n_written)
        steps = min(own.rounds, own.drafted)
        own = replace(own, rounds=steps, accepted=accepted)
        return replace(
            of_rounds,
            drafted=own.drafted,
            accepted=own.accepted,
            verify_steps=own.rounds,
            by_drafter={kind: own} if kind.isidentifier() else {},
        )

    @property
    def _n_prompt(self) -> int:
        """Tokens of the prompt; 0 if they were not counted."""
        return count(self._usage, "prompt_tokens")

    @property
    def _n_written(self) -> int:
        return count(self._usage, "completion_tokens") or self._n_tokens

    def _text_round(self, segments: Iterable[Segment], seconds: float) -> None:
        tokens = tuple(Token(None, text, Origin.UNKNOWN, part=part) for part, text in segments)
        n_past = self._n_prompt and self._n_prompt + self._n_tokens
        self._tell(tokens, n_past, seconds * 1000.0)

    def _tell(
        self,
        tokens: tuple[Token, ...],
        n_past: int,
        ms: float,
        drafted: tuple[DraftToken, ...] = (),
        *,
        n_draft_max: int = 0,
        n_tested: int = 0,
        n_accepted: int = 0,
    ) -> None:
        """Tell the client a round, of which only the total time is known."""
        timings = RoundTimings(None, None, None, None, ms)
        index = len(self._rounds)
        round_ = Round(index, n_draft_max, drafted, n_tested, n_accepted, tokens, n_past, timings)
        self._rounds.append(round_)
        self._say(Progress(id=self.id, step=round_))


class ReasoningSplitter:
    """Finds the reasoning at the beginning of a reply: vLLM, Ollama and others leave it there
    unless they are told otherwise.

    A server that sends reasoning apart is believed: its text is not searched for tags.
    """

    def __init__(self) -> None:
        self._stream = PartStream(_MODES, "start")

    def split(self, segments: Iterable[Segment]) -> list[Segment]:
        """The next texts of the reply; returns those whose part is decided now."""
        decided: list[Segment] = []
        for part, text in segments:
            if part is Part.ANSWER:
                decided += self._stream.push(text)
            else:
                decided += [*self._stream.flush(), (part, text)]
                self._stream = PartStream(_MODES, "answer")
        return decided

    def rest(self) -> list[Segment]:
        """The end of the reply; returns what was held back."""
        return self._stream.flush()


def parted_late(rounds: Sequence[Round]) -> list[Round] | None:
    """The rounds of a whole reply that has `</think>` and no `<think>`, with what comes before the
    tag as reasoning: the chat template opened that, and the server does not take it apart. None for
    any other reply, such as one with the tag in code.
    """
    tokens = [token for round_ in rounds for token in round_.tokens]
    before, tag, _ = "".join(token.text for token in tokens).partition(_CLOSES)
    line = before.rpartition("\n")[2]
    is_code = before.count("```") % 2 or line.count("`") % 2
    if not tag or _OPENS in before or is_code or any(one.part is Part.REASONING for one in tokens):
        return None
    stream = PartStream(_MODES, "begun")

    def parts(token: Token) -> list[Token]:
        segments = stream.push(token.text) or [(stream.part, "")]
        return [replace(token, text=text, part=part) for part, text in segments]

    return [
        replace(one, tokens=tuple(part for token in one.tokens for part in parts(token)))
        for one in rounds
    ]
