"""The JSON chunks of a streamed reply, with the fields that each kind of server adds. Unknown
fields are ignored."""

from __future__ import annotations

from typing import Any

import msgspec

MOST_COUNTED = 2**31
"""More than any count of tokens. Servers' numbers are cut off here: they may be anything."""


def counted(value: int | None) -> int:
    """A server's count, cut to 0 ... MOST_COUNTED."""
    return min(max(value or 0, 0), MOST_COUNTED)


class DeltaPart(msgspec.Struct):
    text: str | None = None


class Delta(msgspec.Struct):
    content: str | list[DeltaPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class StreamedChoice(msgspec.Struct):
    delta: Delta | None = None
    finish_reason: str | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None

    def __post_init__(self) -> None:
        self.cached_tokens = counted(self.cached_tokens)


class CompletionDetails(msgspec.Struct):
    """TabbyAPI's counts of a whole reply: together they are all drafted tokens. OpenAI has fields
    of these names for predicted texts, and sends zeros."""

    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None

    def __post_init__(self) -> None:
        self.prompt_tokens = counted(self.prompt_tokens)
        self.completion_tokens = counted(self.completion_tokens)


class Timings(msgspec.Struct):
    """llama-server's counts and milliseconds, summed since the request began. mlx-vlm sends them at
    the end of a reply, with the fields after them; those of drafting are null without a draft."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    draft_n: int | None = 0
    draft_n_accepted: int | None = 0
    draft_rounds: int | None = None
    draft_kind: str | None = None

    def __post_init__(self) -> None:
        for name in ("cache_n", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted"):
            setattr(self, name, counted(getattr(self, name)))


class PromptProgress(msgspec.Struct):
    total: int
    cache: int
    processed: int

    def __post_init__(self) -> None:
        self.total = counted(self.total)
        self.cache = min(counted(self.cache), self.total)
        self.processed = min(counted(self.processed), self.total)


class SpeculativeDecoding(msgspec.Struct):
    """vLLM's counts for each step of a reply that verified a draft."""

    per_step_accepted: list[int]
    per_step_drafted: list[int]


class Metrics(msgspec.Struct):
    speculative_decoding: SpeculativeDecoding | None = None


class SpecTokensDetails(msgspec.Struct):
    """SGLang's histogram: at index n, the number of steps that accepted n drafted tokens."""

    spec_correct_drafts_histogram: list[int]


class SGLExt(msgspec.Struct):
    spec_tokens_details: SpecTokensDetails | None = None


class Chunk(msgspec.Struct):
    choices: list[StreamedChoice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    prompt_progress: PromptProgress | None = None
    metrics: Metrics | None = None
    sglext: SGLExt | None = None
    error: Any = None
    object: Any = None
    """Is “error” in an error of an older vLLM."""

    @property
    def choice(self) -> StreamedChoice | None:
        return self.choices[0] if self.choices else None


chunk_decoder = msgspec.json.Decoder(Chunk)
