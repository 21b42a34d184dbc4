"""The records of a bench: its prompts, and each reply as it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eaglechat.wire.records import per_second
from eaglechat.wire.stats import DrafterStats

PLAIN = "plain"
"""The setting without speculation: nothing drafted and no features exported."""

AS_STARTED = "as started"
"""The setting of a server, which drafts as it was started to, or not at all."""


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt of the bench. Its name heads a row of the tables."""

    name: str
    text: str


@dataclass(frozen=True)
class BenchRun:
    """One measured reply."""

    prompt: str
    setting: str
    repeat: int
    tokens: int
    generation_ms: float
    n_drafted: int
    n_tested: int
    n_accepted: int
    mean_accepted_length: float | None
    verify_ms: Mapping[int, float]
    """Median milliseconds of a decode of the target, by batch width."""
    n: int | str | None = None
    """The draft length or "auto"; None for plain decoding."""
    shape: str | None = None
    """The shape of drafts, "chain", "tree" or "auto"; None for plain decoding."""
    ngram: bool = False
    """Whether n-grams were tried before the draft."""
    drafter: str | None = None
    """The drafter that was asked for, "auto" if it chose; None for plain decoding."""
    by_drafter: dict[str, DrafterStats] = field(default_factory=dict)
    """Counts by drafter."""

    @property
    def tokens_per_second(self) -> float:
        return per_second(self.tokens, self.generation_ms) or 0.0
