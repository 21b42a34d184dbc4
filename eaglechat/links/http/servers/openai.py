"""Any OpenAI-compatible server, of which only the text and the counts at the end are used. Some
count the drafted tokens there: TabbyAPI in its usage, mlx-vlm in its timings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from eaglechat.links.http.servers.base import (
    ReasoningSplitter,
    ReplyReader,
    TimedEnding,
    common_body,
    without_times,
)
from eaglechat.links.http.servers.chunks import Chunk, counted
from eaglechat.wire.capabilities import Capabilities
from eaglechat.wire.protocol import Chat
from eaglechat.wire.records import Origin, Part, Prefill, ReplyEnd, Round, Token
from eaglechat.wire.stats import DrafterStats, SpeculationStats


class OpenAIServer:
    """The kind of a server that is not known to be of another kind."""

    name = "this server"
    can = Capabilities()

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        return common_body(chat, model, seed)

    def reader(self, chat: Chat) -> TextReader:
        return TextReader(chat)


class TextReader(ReplyReader):
    """Makes each chunk a round of one token of unknown origin: most servers send a chunk for each
    token."""

    def __init__(self, chat: Chat) -> None:
        self._ending, self._splitter = TimedEnding(chat), ReasoningSplitter()
        self._count = 0

    def take(self, chunk: Chunk) -> Iterator[Prefill | Round]:
        self._ending.take(chunk)
        if chunk.written:
            self._count += 1
            texts: list[tuple[str, Part | None]] = [*self._splitter.split(chunk.written)]
            texts = texts or [("", None)]
            yield self._round(self._count - 1, texts, self._ending.lap())

    def rest(self) -> Iterator[Round]:
        if left := self._splitter.rest():
            yield self._round(self._count, left, 0.0)

    def stats(self, of_rounds: SpeculationStats) -> SpeculationStats:
        timings, details = self._ending.timings, self._ending.usage.completion_tokens_details
        if timings.draft_n:
            drafted, accepted = timings.draft_n, counted(timings.draft_n_accepted)
        elif details and None not in (
            details.accepted_prediction_tokens,
            details.rejected_prediction_tokens,
        ):
            accepted = counted(details.accepted_prediction_tokens)
            drafted = accepted + counted(details.rejected_prediction_tokens)
        else:
            return of_rounds
        # mlx-vlm also counts tokens that it accepted behind the end of the reply.
        accepted = min(accepted, drafted, self._ending.usage.completion_tokens or self._count)
        steps = min(counted(timings.draft_rounds), drafted)
        kind = timings.draft_kind or ""
        by_drafter = (
            {kind: DrafterStats(steps, drafted, 0, accepted)} if kind.isidentifier() else {}
        )
        return replace(
            of_rounds,
            drafted=drafted,
            accepted=accepted,
            verify_steps=steps,
            by_drafter=by_drafter,
        )

    def end(self, seed: int, *, is_cancelled: bool) -> ReplyEnd:
        return self._ending.end(self._count, 1, seed, is_cancelled=is_cancelled)

    def _round(self, index: int, texts: Sequence[tuple[str, Part | None]], ms: float) -> Round:
        tokens = tuple(Token(None, text, Origin.UNKNOWN, part=part) for text, part in texts)
        n_past = self._ending.n_past(self._count)
        return Round(index, 0, (), 0, 0, tokens, n_past, without_times(ms))
