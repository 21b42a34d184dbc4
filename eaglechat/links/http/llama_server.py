"""llama.cpp's own server. With `timings_per_token` each chunk has the counts of drafted and
accepted tokens so far; the origin of each token follows from how they grow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eaglechat.links.http.answers import count, fields
from eaglechat.links.http.chunks import Chunk, Timings
from eaglechat.links.http.openai import TemplatedServer
from eaglechat.links.http.reply import Reply, most_tokens
from eaglechat.wire.part_stream import Segment
from eaglechat.wire.protocol import AnyEvent, Capabilities, Chat, Progress
from eaglechat.wire.records import DraftToken, Origin, Part, Prefill, ReplyTimings, Token

LONGEST_DRAFT = 1024
"""Most drafted tokens of one round; a higher count of a server is not believed."""
_NO_TIME_MS = 0.01
"""Times below this are none: the first token comes from the prompt, and the server reports about a
microsecond for it."""


class LlamaServer(TemplatedServer):
    """The kind. `n_draft_max` is the longest draft that the server was seen to make, `drafter` is
    who drafts, if that is known: the server does not say it."""

    name = "llama-server"
    can = Capabilities(origins=True, prompt=True, goes_on_from_text=True)

    def __init__(self) -> None:
        self.n_draft_max = 0
        self.drafter = ""

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        sampling = chat.sampling
        return super().body(chat, model, seed) | {
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repeat_penalty": sampling.repeat_penalty,
            "timings_per_token": True,
            "return_progress": True,
        }

    def reply(self, chat: Chat, say: Callable[[AnyEvent], None]) -> Reply:
        return CountedReply(self, chat, say)


class LlamaSwap(LlamaServer):
    """A proxy that starts a server for each model, when it is first asked for a reply. That is
    mostly llama-server, so it is asked as llama-server is; other servers ignore the fields they do
    not know."""

    name = "llama-swap"
    can = Capabilities(origins=True, goes_on_from_text=True)


@dataclass(frozen=True)
class _CountedRound:
    """A round as the server counts it: the accepted tokens and one that the target chose.

    `is_known`: whether it is one round, of which the counts are; else nothing is known of its
    tokens but how many there are.
    """

    n_tokens: int
    n_drafted: int
    n_accepted: int
    ms: float
    is_known: bool

    def origin(self, place: int) -> Origin:
        """The origin of the token at this index of the round."""
        if not self.is_known:
            return Origin.UNKNOWN
        if self.n_drafted == 0:
            return Origin.PLAIN
        if place < self.n_accepted:
            return Origin.ACCEPTED
        return Origin.BONUS if self.n_accepted == self.n_drafted else Origin.CORRECTION


class CountedReply(Reply):
    """Makes rounds from counts: chunks with the same counts and times are of one round. It is told
    once its last token has come, or the next round began.

    A reply without counts is read as text: older llama-servers send none, nor do other servers
    behind llama-swap or a proxy.
    """

    def __init__(self, kind: LlamaServer, chat: Chat, say: Callable[[AnyEvent], None]) -> None:
        super().__init__(chat, say)
        self._kind = kind
        self._has_counts: bool | None = None
        """None until the first chunk that tells."""
        self._told = 0
        """Number of tokens in the rounds that were told."""
        self._most = 0
        """The most tokens that the chunks so far may count for."""
        self._before = self._now = Timings()
        """The counts with which the latest round began, and the latest ones."""
        self._round: _CountedRound | None = None
        """The round that has not been told yet."""
        self._is_lost = False
        """Whether the tokens of the previous round are unknown."""
        self._texts: dict[int, list[Segment]] = {}
        """By the number of a token that has not been told yet, its texts."""
        self._pieces: list[Segment] = []
        """Texts of chunks without counts: they belong to the next token."""

    def _read(self, chunk: Chunk, segments: list[Segment]) -> None:
        timings, progress = chunk.timings, fields(chunk.raw, "prompt_progress")
        if self._has_counts is None and (timings or progress or segments):
            self._has_counts = bool(timings or progress)
        if not self._has_counts:
            super()._read(chunk, segments)
            return
        if progress:
            total = count(progress, "total")
            done, cached = (min(count(progress, n), total) for n in ("processed", "cache"))
            self._say(Progress(id=self.id, step=Prefill(done, total, cached)))
        self._pieces += self._splitter.split(segments)
        self._most += most_tokens(segments)
        if timings and timings.predicted_n:
            self._count(timings)

    def _count(self, now: Timings) -> None:
        """Take in the counts of the latest chunk."""
        n = min(max(now.predicted_n, self._n_tokens), self._most)
        if self._round is not None and _key(now) != _key(self._before):
            self._close(n)
        self._n_tokens, self._now = n, now
        self._begin()
        if self._pieces:
            # Text whose round has been told already goes to the next token.
            self._texts.setdefault(max(n, self._told + 1), []).extend(self._pieces)
            self._pieces = []
        if self._reason:
            self.flush()
        elif self._round is not None and n >= self._told + self._round.n_tokens:
            self._close(n)

    def flush(self) -> None:
        """Also what is left of the last round: a stop or a limit may have cut it short."""
        if not self._has_counts:
            super().flush()
            return
        while self._round is not None:
            self._close(self._n_tokens)
            self._begin()
        self._pieces += self._splitter.rest()
        left = [*(one for n in sorted(self._texts) for one in self._texts[n]), *self._pieces]
        self._texts, self._pieces = {}, []
        if left:
            tokens = tuple(Token(None, text, Origin.UNKNOWN, part=part) for part, text in left)
            self._tell(tokens, self._n_past, 0.0, n_draft_max=self._kind.n_draft_max)

    def _begin(self) -> None:
        """Begin a round with the latest counts, if they have tokens of it.

        If tokens passed without a chunk, they may belong to whole rounds that were not seen. Then
        the origins are unknown, unless the counts fit a single round with a full draft; they stay
        unknown up to the next round that begins right after the last counted token.
        """
        came = self._n_tokens - self._told
        if self._round is not None or came <= 0:
            return
        before, now, longest = self._before, self._now, self._kind.n_draft_max
        n_drafted = min(max(now.draft_n - before.draft_n, 0), LONGEST_DRAFT)
        n_accepted = min(max(now.draft_n_accepted - before.draft_n_accepted, 0), n_drafted)
        if self._is_lost:
            is_known = came == 1 and _key(now) != _key(before)
        else:
            is_full = came <= n_accepted + 1 and n_drafted == longest
            is_known = came == 1 or n_drafted == 0 or is_full
        n_rounds = 1 if is_known else math.ceil(n_drafted / (longest or 1))
        n_tokens = max(came, n_accepted + n_rounds)
        if is_known:
            self._kind.n_draft_max = max(longest, n_drafted)
        else:
            n_drafted = n_accepted = 0
        ms = _known_ms(now.predicted_ms - before.predicted_ms)
        self._round = _CountedRound(n_tokens, n_drafted, n_accepted, ms, is_known)
        self._is_lost, self._before = not is_known, now

    def _close(self, last: int) -> None:
        """Tell the round, at most up to token number `last`. Tokens that follow with the same
        counts, as after the server replays a checkpoint, are plain tokens of the target."""
        round_, self._round = self._round, None
        assert round_ is not None
        n, first = min(last - self._told, round_.n_tokens), self._told + 1
        if n <= 0:
            return
        self._told += n
        written = [self._texts.pop(first + place, [(None, "")]) for place in range(n)]
        n_accepted = min(round_.n_accepted, n)
        texts = ["".join(text for _, text in pieces) for pieces in written[:n_accepted]]
        self._tell(
            tuple(
                self._token(text, round_.origin(place), part)
                for place, pieces in enumerate(written)
                for part, text in pieces
            ),
            self._n_past,
            round_.ms,
            tuple(
                DraftToken(None, text, None, parent=place - 1, drafter=self._kind.drafter)
                for place, text in enumerate([*texts, *[None] * (round_.n_drafted - n_accepted)])
            ),
            n_draft_max=self._kind.n_draft_max,
            n_tested=min(n, round_.n_drafted),
            n_accepted=n_accepted,
        )

    def _token(self, text: str, origin: Origin, part: Part | None) -> Token:
        drafter = self._kind.drafter if origin is Origin.ACCEPTED else ""
        return Token(None, text, origin, drafter or None, part)

    @property
    def _n_past(self) -> int:
        return self._now.cache_n + self._now.prompt_n + self._told

    def _totals(self) -> tuple[int, ReplyTimings]:
        if not self._has_counts:
            return super()._totals()
        now = self._now
        return self._n_tokens, ReplyTimings(
            prefill_ms=now.prompt_ms,
            prefill_tokens=now.prompt_n,
            reused_tokens=now.cache_n,
            generation_ms=_known_ms(now.predicted_ms),
        )


def _known_ms(ms: float) -> float:
    return ms if ms > _NO_TIME_MS else 0.0


def _key(timings: Timings) -> tuple[float, int, int]:
    return timings.predicted_ms, timings.draft_n, timings.draft_n_accepted
