"""A streamed reply of any OpenAI-compatible server: its text as it comes, and what the server
counts.

llama-server counts in each chunk the tokens that were drafted and accepted so far
(`timings_per_token`); the origin of each token follows from how the counts grow. Who counts at the
end of the reply: `Chunk.draft_counts`.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from eaglechat.links.http.answers import count, fields
from eaglechat.links.http.chunks import Chunk, Timings
from eaglechat.links.http.openai import OpenAIServer
from eaglechat.wire.part_stream import Mode, PartStream, Segment
from eaglechat.wire.protocol import AnyEvent, Chat, Done, Progress, Settled
from eaglechat.wire.records import (
    DraftToken,
    FinishReason,
    Origin,
    Part,
    Prefill,
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
LONGEST_DRAFT = 1024
"""Most drafted tokens of one round; a higher count of a server is not believed."""
_NO_TIME_MS = 0.01
"""Times below this are none: the first token comes from the prompt, and llama-server reports about
a microsecond for it."""

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
    """Tells the client rounds.

    Of counted tokens, chunks with the same counts and times are of one round, which is told once
    its last token has come, or the next round began. Without counts, as from most servers, each
    chunk is a round, whose tokens are of unknown origin: one, unless its usage counts more.
    """

    def __init__(self, kind: OpenAIServer, chat: Chat, say: Callable[[AnyEvent], None]) -> None:
        # Servers that are written in JavaScript cut characters in two: half of a surrogate pair
        # waits for the other half, which comes with the next chunk.
        utf_16 = codecs.getincrementaldecoder("utf-16-le")
        self._characters = {part: utf_16("replace") for part in Part}
        self._parts = PartStream(_MODES, "start")
        self.is_whole = False
        """Whether the server has said that the reply ended."""
        self.id, self._kind, self._chat, self._say = chat.id, kind, chat, say
        self._rounds: list[Round] = []
        """What the client has been told."""
        self._reason, self._usage = "", dict[str, Any]()
        self._draft_counts: tuple[str, DrafterStats] | None = None
        self._n_tokens = self._n_first = 0
        """Tokens that came, and those of them that came with the first text."""
        self._asked = self._first = self._last = time.monotonic()
        """When the reply was asked for, and when its first and its last text came."""
        # Of counted tokens
        self._has_counts: bool | None = None if kind.can.origins else False
        """None until the first chunk that tells: older llama-servers do not count, nor do other
        servers behind llama-swap or a proxy."""
        self._told = self._open = 0
        """Tokens of the rounds that were told, and of the one that has begun."""
        self._most = 0
        """The most tokens that the chunks so far may count for."""
        self._before = self._now = Timings()
        """The counts of the rounds that were told, and the latest ones."""
        self._is_lost = False
        """Whether nothing is known of the tokens of the latest round but how many there are."""
        self._texts: dict[int, list[Segment]] = {}
        """By the number of a token that has not been told yet, its texts."""
        self._pieces: list[Segment] = []
        """Texts of chunks without counts: they belong to the next token."""

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
        segments: list[Segment] = []
        for part, piece in [*chunk.pieces, *ends]:
            units = piece.encode("utf-16-le", "surrogatepass")
            if text := self._characters[part].decode(units, not piece):
                segments.append((part, text))
        timings, progress = chunk.timings, fields(chunk.raw, "prompt_progress")
        if self._has_counts is None and (timings or progress or segments):
            self._has_counts = bool(timings or progress)
        if not self._has_counts:
            if segments:
                self._read(chunk, segments)
            return
        if progress:
            total = count(progress, "total")
            done, cached = (min(count(progress, n), total) for n in ("processed", "cache"))
            self._say(Progress(id=self.id, step=Prefill(done, total, cached)))
        self._pieces += self._split(segments)
        self._most += most_tokens(segments)
        if timings and timings.predicted_n:
            self._count(timings)

    def flush(self) -> None:
        """Tell the client what was held back, also what is left of the last round: no more chunks
        come, for whatever reason."""
        while self._open:
            self._close(self._n_tokens)
            self._begin()
        texts = [text for n in sorted(self._texts) for text in self._texts[n]]
        left = [*texts, *self._pieces, *self._parts.flush()]
        self._texts, self._pieces = {}, []
        if left:
            self._tell(_unknown(left), 0.0)

    def done(self, seed: int, n_ctx: int, *, is_cancelled: bool) -> Done:
        """The end of the reply, in a context of `n_ctx` tokens (0 if that is not known). The client
        is told all rounds again if only the end tells reasoning from answer."""
        if rounds := _parted_late(self._rounds):
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

    def _read(self, chunk: Chunk, segments: list[Segment]) -> None:
        """Read a chunk with these texts, of a server that does not count by the round."""
        now = time.monotonic()
        if not self._n_tokens:
            self._first = self._last = now
        # If the count does not grow, the text belongs to tokens that were counted before.
        counted = count(chunk.usage, "completion_tokens")
        new = min(max(counted - self._n_tokens, 1), most_tokens(segments))
        self._n_tokens += new
        self._n_first = self._n_first or new
        segments = self._split(segments)
        part = segments[-1][0] if segments else None
        tokens = _unknown([*segments, *[(part, "")] * (new - len(segments))])
        self._tell(tokens, (now - self._last) * 1000.0)
        self._last = now

    def _split(self, segments: Iterable[Segment]) -> list[Segment]:
        """The texts whose part is decided now. vLLM, Ollama and others leave reasoning at the
        beginning of the text unless they are told otherwise. A server that sends it apart is
        believed: its text is not searched for tags."""
        decided: list[Segment] = []
        for part, text in segments:
            if part is Part.ANSWER:
                decided += self._parts.push(text)
            else:
                decided += [*self._parts.flush(), (part, text)]
                self._parts = PartStream(_MODES, "answer")
        return decided

    def _count(self, now: Timings) -> None:
        n = min(max(now.predicted_n, self._n_tokens), self._most)
        if self._open and _key(now) != _key(self._now):
            self._close(n)
        self._n_tokens, self._now = n, now
        self._begin()
        if self._pieces:
            # Text whose round has been told already goes to the next token.
            self._texts.setdefault(max(n, self._told + 1), []).extend(self._pieces)
            self._pieces = []
        if self._reason:
            self.flush()
        elif self._open and n >= self._told + self._open:
            self._close(n)

    def _begin(self) -> None:
        """Begin a round with the latest counts, if they have tokens of it.

        If tokens passed without a chunk, they may belong to whole rounds that were not seen. Then
        the origins are unknown, unless the counts fit a single round with a full draft; they stay
        unknown up to the next round that begins right after the last counted token.
        """
        came = self._n_tokens - self._told
        if self._open or came <= 0:
            return
        n_drafted, n_accepted = self._grown
        if self._is_lost:
            is_known = came == 1 and _key(self._now) != _key(self._before)
        else:
            is_full = came <= n_accepted + 1 and n_drafted == self._kind.n_draft_max
            is_known = came == 1 or n_drafted == 0 or is_full
        self._is_lost = not is_known
        self._open = max(came, n_accepted + 1) if is_known else came

    def _close(self, last: int) -> None:
        """Tell the round, at most up to token number `last`. Tokens that follow with the same
        counts, as after the server replays a checkpoint, are plain tokens of the target."""
        kind, first, n = self._kind, self._told + 1, min(last - self._told, self._open)
        n_drafted, n_accepted = (0, 0) if self._is_lost else self._grown
        ms = _known_ms(self._now.predicted_ms - self._before.predicted_ms)
        self._before, self._open = self._now, 0
        self._told += n
        kind.n_draft_max = max(kind.n_draft_max, n_drafted)

        def origin(place: int) -> Origin:
            if self._is_lost:
                return Origin.UNKNOWN
            if place < n_accepted:
                return Origin.ACCEPTED
            if n_drafted == 0:
                return Origin.PLAIN
            return Origin.BONUS if n_accepted == n_drafted else Origin.CORRECTION

        written = [self._texts.pop(first + place, [(None, "")]) for place in range(n)]
        drafter = kind.drafter or None
        tokens = [
            Token(None, text, origin(place), drafter if place < n_accepted else None, part)
            for place, pieces in enumerate(written)
            for part, text in pieces
        ]
        texts = ["".join(text for _, text in pieces) for pieces in written[:n_accepted]]
        drafted = tuple(
            DraftToken(None, text, None, parent=place - 1, drafter=kind.drafter)
            for place, text in enumerate([*texts, *[None] * (n_drafted - len(texts))])
        )
        self._tell(tokens, ms, drafted, n_tested=min(n, n_drafted), n_accepted=len(texts))

    @property
    def _grown(self) -> tuple[int, int]:
        """Drafted and accepted tokens since the rounds that were told."""
        before, now = self._before, self._now
        n_drafted = min(max(now.draft_n - before.draft_n, 0), LONGEST_DRAFT)
        return n_drafted, min(max(now.draft_n_accepted - before.draft_n_accepted, 0), n_drafted)

    def _totals(self) -> tuple[int, ReplyTimings]:
        """The tokens of the reply, and its times: the server's, or as they were measured here. The
        time that the first tokens took cannot be told from that of the prompt: they are given the
        mean time of the others."""
        if self._has_counts:
            now = self._now
            generation_ms = _known_ms(now.predicted_ms)
            times = ReplyTimings(now.prompt_ms, now.prompt_n, now.cache_n, generation_ms)
            return self._n_tokens, times
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

    def _tell(
        self,
        tokens: Sequence[Token],
        ms: float,
        drafted: tuple[DraftToken, ...] = (),
        *,
        n_tested: int = 0,
        n_accepted: int = 0,
    ) -> None:
        """Tell the client a round, of which only the total time is known."""
        n_past = self._n_prompt and self._n_prompt + self._n_tokens
        if self._has_counts:
            n_past = self._now.cache_n + self._now.prompt_n + self._told
        round_ = Round(
            index=len(self._rounds),
            n_draft_max=self._kind.n_draft_max,
            drafted=drafted,
            n_tested=n_tested,
            n_accepted=n_accepted,
            tokens=tuple(tokens),
            n_past=n_past,
            timings=RoundTimings(None, None, None, None, ms),
        )
        self._rounds.append(round_)
        self._say(Progress(id=self.id, step=round_))


def _unknown(segments: Iterable[Segment]) -> list[Token]:
    return [Token(None, text, Origin.UNKNOWN, part=part) for part, text in segments]


def _known_ms(ms: float) -> float:
    return ms if ms > _NO_TIME_MS else 0.0


def _key(timings: Timings) -> tuple[float, int, int]:
    return timings.predicted_ms, timings.draft_n, timings.draft_n_accepted


def _parted_late(rounds: Sequence[Round]) -> list[Round] | None:
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
