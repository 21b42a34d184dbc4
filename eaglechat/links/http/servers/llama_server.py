"""llama.cpp's own server. With `timings_per_token` each chunk has the counts of drafted and
accepted tokens so far; the origin of each token follows from how they grow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from eaglechat.links.http.servers.base import (
    LONGEST_DRAFT,
    most_tokens,
    templated_body,
    without_times,
)
from eaglechat.links.http.servers.chunks import Chunk, Timings, Written, counted
from eaglechat.links.http.servers.openai import OpenAIServer, TextReader
from eaglechat.wire.capabilities import Capabilities
from eaglechat.wire.protocol import Chat
from eaglechat.wire.records import (
    DraftToken,
    Origin,
    Part,
    Prefill,
    ReplyEnd,
    ReplyTimings,
    Round,
    Token,
)
from eaglechat.wire.stats import SpeculationStats

_NO_TIME_MS = 0.01
"""Times below this are none: the first token comes from the prompt, and the server reports about a
microsecond for it."""


class LlamaServer(OpenAIServer):
    """The kind. `n_draft_max` is the longest draft that the server was seen to make, `drafter` is
    who drafts, if that is known: the server does not say it."""

    name = "llama-server"
    can = Capabilities(origins=True, prompt=True, goes_on_from_text=True)

    def __init__(self) -> None:
        self.n_draft_max = 0
        self.drafter = ""

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        sampling = chat.sampling
        return templated_body(chat, model, seed) | {
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repeat_penalty": sampling.repeat_penalty,
            "timings_per_token": True,
            "return_progress": True,
        }

    def reader(self, chat: Chat) -> LlamaServerReader:
        return LlamaServerReader(self, chat)


class LlamaSwap(LlamaServer):
    """A proxy that starts a server for each model, when it is first asked for a reply. That is
    mostly llama-server, so it is asked as llama-server is; other servers ignore the fields they do
    not know."""

    name = "llama-swap"
    can = Capabilities(origins=True, goes_on_from_text=True)


class _Step:
    """A round as the server counts it: all chunks with the same counts and times belong to one
    round.

    A round has the accepted tokens and one that the target chose. If tokens passed without a chunk,
    they may belong to whole rounds that were not seen. Then the origins are unknown (`is_known` is
    False), unless the counts fit a single round with a full draft; they stay unknown up to the next
    round that begins right after the last counted token.
    """

    def __init__(
        self, before: Timings, now: Timings, first: int, n_draft_max: int, *, is_lost: bool
    ) -> None:
        self.key = _key(now)
        self.first = first
        self.ms = _known_ms(now.predicted_ms - before.predicted_ms)
        n_drafted = counted(now.draft_n) - counted(before.draft_n)
        n_accepted = counted(now.draft_n_accepted) - counted(before.draft_n_accepted)
        self.n_drafted = min(max(n_drafted, 0), LONGEST_DRAFT)
        self.n_accepted = min(max(n_accepted, 0), self.n_drafted)
        came = now.predicted_n - first + 1
        is_full = came <= self.n_accepted + 1 and self.n_drafted == n_draft_max
        if is_lost:
            self.is_known = came == 1 and self.key != _key(before)
        else:
            self.is_known = came == 1 or self.n_drafted == 0 or is_full
        n_rounds = 1 if self.is_known else math.ceil(self.n_drafted / (n_draft_max or 1))
        self.n_tokens = max(came, self.n_accepted + n_rounds)

    @property
    def last(self) -> int:
        return self.first + self.n_tokens - 1

    def origin(self, place: int) -> Origin:
        """The origin of the token at this index of the round."""
        if not self.is_known:
            return Origin.UNKNOWN
        if self.n_drafted == 0:
            return Origin.PLAIN
        if place < self.n_accepted:
            return Origin.ACCEPTED
        return Origin.BONUS if self.n_accepted == self.n_drafted else Origin.CORRECTION


class LlamaServerReader(TextReader):
    """Makes rounds from counts. A round is told once its last token has come, or the next round
    began.

    A reply without counts is read as text: older llama-servers send none, nor do other servers
    behind llama-swap or a proxy.
    """

    def __init__(self, kind: LlamaServer, chat: Chat) -> None:
        super().__init__(chat)
        self._kind = kind
        self._has_counts: bool | None = None
        """None until the first chunk that tells."""
        self._told = 0
        """Number of tokens in the rounds that were told."""
        self._most = 0
        """The most tokens that the chunks so far may count for."""
        self._before = self._now = Timings()
        self._step: _Step | None = None
        self._is_lost = False
        """Whether the tokens of the previous round are unknown."""
        self._pieces: list[Written] = []
        """Texts of chunks without counts: they belong to the next token."""
        self._texts: dict[int, list[tuple[str, Part | None]]] = {}

    def take(self, chunk: Chunk) -> Iterator[Prefill | Round]:
        if self._has_counts is None:
            if chunk.timings or chunk.prompt_progress:
                self._has_counts = True
            elif chunk.written:
                self._has_counts = False
        if self._has_counts:
            yield from self._take_counted(chunk)
        else:
            yield from super().take(chunk)

    def _take_counted(self, chunk: Chunk) -> Iterator[Prefill | Round]:
        self._ending.take(chunk)
        if progress := chunk.prompt_progress:
            yield Prefill(progress.processed, progress.total, progress.cache)
        self._pieces += self._splitter.split(chunk.written)
        self._most += most_tokens(chunk.written)
        timings = chunk.timings
        if timings is None or timings.predicted_n == 0:
            return
        timings.predicted_n = min(max(timings.predicted_n, self._now.predicted_n), self._most)
        is_over = bool(self._ending.finish_reason)
        if self._step is not None and _key(timings) != self._step.key:
            yield from self._close(min(self._step.last, timings.predicted_n))
        if self._step is None and timings.predicted_n > self._told:
            self._begin(timings)
        self._now = timings
        if self._pieces:
            # Text whose round has been told already goes to the next token.
            number = max(timings.predicted_n, self._told + 1)
            self._texts.setdefault(number, []).extend(self._pieces)
            self._pieces = []
        if is_over:
            yield from self.rest()
        elif self._step is not None and timings.predicted_n >= self._step.last:
            yield from self._close(self._step.last)

    def rest(self) -> Iterator[Round]:
        """What is left of the last round; a stop or a limit may have cut it short."""
        if not self._has_counts:
            yield from super().rest()
            return
        while self._step is not None:
            yield from self._close(min(self._step.last, self._now.predicted_n))
            if self._now.predicted_n > self._told:
                self._begin(self._now)
        self._pieces += self._splitter.rest()
        if left := [*(p for n in sorted(self._texts) for p in self._texts[n]), *self._pieces]:
            self._texts, self._pieces = {}, []
            tokens = tuple(Token(None, text, Origin.UNKNOWN, part=part) for text, part in left)
            yield self._counted_round(tokens, (), 0, 0, 0.0)

    def stats(self, of_rounds: SpeculationStats) -> SpeculationStats:
        return of_rounds if self._has_counts else super().stats(of_rounds)

    def end(self, seed: int, *, is_cancelled: bool) -> ReplyEnd:
        if not self._has_counts:
            return super().end(seed, is_cancelled=is_cancelled)
        now = self._now
        return ReplyEnd(
            finish_reason=self._ending.why(now.predicted_n, is_cancelled=is_cancelled),
            seed=seed,
            tokens=now.predicted_n,
            tail="",
            timings=ReplyTimings(
                prefill_ms=now.prompt_ms,
                prefill_tokens=now.prompt_n,
                reused_tokens=now.cache_n,
                generation_ms=_known_ms(now.predicted_ms),
            ),
        )

    def _begin(self, now: Timings) -> None:
        longest = self._kind.n_draft_max
        step = _Step(self._before, now, self._told + 1, longest, is_lost=self._is_lost)
        self._is_lost = not step.is_known
        if step.is_known:
            self._kind.n_draft_max = max(self._kind.n_draft_max, step.n_drafted)
        self._step, self._before = step, now

    def _close(self, last: int) -> Iterator[Round]:
        """Tell the round up to token number `last`. Tokens that follow with the same counts, as
        after the server replays a checkpoint, are plain tokens of the target."""
        step, self._step = self._step, None
        assert step is not None
        if last < step.first:
            return
        self._told = last
        places = range(last - step.first + 1)
        written = [self._texts.pop(step.first + place, [("", None)]) for place in places]
        tokens = tuple(
            self._token(text, step.origin(place), part)
            for place, pieces in enumerate(written)
            for text, part in pieces
        )
        n_drafted = step.n_drafted if step.is_known else 0
        n_accepted = min(step.n_accepted, len(written), n_drafted)
        texts = ["".join(text for text, _ in pieces) for pieces in written[:n_accepted]]
        drafted = tuple(
            DraftToken(None, text, None, parent=place - 1, drafter=self._kind.drafter)
            for place, text in enumerate([*texts, *[None] * (n_drafted - n_accepted)])
        )
        yield self._counted_round(
            tokens, drafted, min(len(written), n_drafted), n_accepted, step.ms
        )

    def _token(self, text: str, origin: Origin, part: Part | None) -> Token:
        drafter = self._kind.drafter if origin is Origin.ACCEPTED else ""
        return Token(None, text, origin, drafter or None, part)

    def _counted_round(
        self,
        tokens: tuple[Token, ...],
        drafted: tuple[DraftToken, ...],
        n_tested: int,
        n_accepted: int,
        ms: float,
    ) -> Round:
        now = self._now
        index, self._n_rounds = self._n_rounds, self._n_rounds + 1
        return Round(
            index=index,
            n_draft_max=self._kind.n_draft_max,
            drafted=drafted,
            n_tested=n_tested,
            n_accepted=n_accepted,
            tokens=tokens,
            n_past=now.cache_n + now.prompt_n + self._told,
            timings=without_times(ms),
        )


def _known_ms(ms: float) -> float:
    return ms if ms > _NO_TIME_MS else 0.0


def _key(timings: Timings) -> tuple[float, int | None, int | None]:
    return timings.predicted_ms, timings.draft_n, timings.draft_n_accepted
