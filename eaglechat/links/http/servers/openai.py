"""Any OpenAI-compatible server: its text as it comes, and its counts at the end of the reply.

Who counts drafted tokens there: vLLM in its metrics, SGLang in its sglext, TabbyAPI in its usage,
mlx-vlm in its timings. The origin of a token is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from eaglechat.links.http.servers.base import (
    Ending,
    ReasoningSplitter,
    common_body,
    most_tokens,
    templated_body,
    without_times,
)
from eaglechat.links.http.servers.chunks import Chunk, DraftCounts
from eaglechat.wire.capabilities import Capabilities
from eaglechat.wire.protocol import Chat
from eaglechat.wire.records import Origin, Part, Prefill, ReplyEnd, Round, Token
from eaglechat.wire.stats import DrafterStats, SpeculationStats


class OpenAIServer:
    """A kind of server; this one, if it is not known to be of another."""

    name = "this server"
    """As it is written in “not reported by vLLM”."""
    can = Capabilities()

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        """The body of the request for a reply."""
        return common_body(chat, model, seed)

    def reader(self, chat: Chat) -> TextReader:
        """A reader for the answer to that request."""
        return TextReader(chat)


class VLLM(OpenAIServer):
    """Started with `--per-request-spec-decode-metrics detailed`, it counts drafted tokens."""

    name = "vLLM"
    can = Capabilities(goes_on_from_text=True)

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        # min_p is left out: vLLM refuses it when it speculates.
        return templated_body(chat, model, seed) | {
            "top_k": chat.sampling.top_k or -1,
            "repetition_penalty": chat.sampling.repeat_penalty,
            # A chunk is a step of its engine, which may have several tokens.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }


class SGLang(VLLM):
    name = "SGLang"

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        return super().body(chat, model, seed) | {"return_spec_tokens_details": True}


class TextReader:
    """Turns the chunks of a streamed reply into records, each chunk into a round. It has one token
    where the server does not count them as it goes: most send a chunk for each."""

    def __init__(self, chat: Chat) -> None:
        self._ending, self._splitter = Ending(chat), ReasoningSplitter()
        self._n_rounds = self._n_tokens = self._n_first = 0
        self._counts: DraftCounts | None = None

    def take(self, chunk: Chunk) -> Iterator[Prefill | Round]:
        """The records that the next chunk completes."""
        self._ending.take(chunk)
        self._counts = chunk.draft_counts or self._counts
        if not chunk.written:
            return
        # If the count does not grow, the text belongs to tokens that were counted before.
        new = (chunk.usage.completion_tokens or 0 if chunk.usage else 0) - self._n_tokens
        new = min(max(new, 1), most_tokens(chunk.written))
        self._n_tokens += new
        self._n_first = self._n_first or new
        texts: list[tuple[str, Part | None]] = [*self._splitter.split(chunk.written)]
        part = texts[-1][1] if texts else None
        texts += [("", part)] * (new - len(texts))
        yield self._round(texts, self._ending.lap())

    def rest(self) -> Iterator[Round]:
        """The records that were held back, when no more chunks come for whatever reason."""
        if left := self._splitter.rest():
            yield self._round(left, 0.0)

    def stats(self, of_rounds: SpeculationStats) -> SpeculationStats:
        """The statistics of the reply at its end: those of its rounds, with what the server counted
        over the whole reply where the rounds do not say it."""
        counts = self._counts
        if counts is None:
            return of_rounds
        # mlx-vlm also counts tokens that it accepted behind the end of the reply.
        written = self._ending.usage.completion_tokens or self._n_tokens
        accepted = min(counts.accepted, counts.drafted, written)
        own = DrafterStats(counts.steps, counts.drafted, 0, accepted)
        return replace(
            of_rounds,
            drafted=counts.drafted,
            accepted=accepted,
            verify_steps=counts.steps,
            by_drafter={counts.kind: own} if counts.kind.isidentifier() else {},
        )

    def end(self, seed: int, *, is_cancelled: bool) -> ReplyEnd:
        return self._ending.end(self._n_tokens, self._n_first or 1, seed, is_cancelled=is_cancelled)

    def _round(self, texts: Sequence[tuple[str, Part | None]], ms: float) -> Round:
        index, self._n_rounds = self._n_rounds, self._n_rounds + 1
        tokens = tuple(Token(None, text, Origin.UNKNOWN, part=part) for text, part in texts)
        n_past = self._ending.n_past(self._n_tokens)
        return Round(index, 0, (), 0, 0, tokens, n_past, without_times(ms))
