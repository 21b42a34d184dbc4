"""A bench as data: what is asked, and each reply as it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eaglechat.wire.stats import DrafterStats

PLAIN = "plain"
"""The setting without speculation: no draft, no features, as if only the target were loaded."""

AS_STARTED = "as started"
"""The setting of a server that drafts as it was started to, or not at all."""

REFERENCE = "reference"
"""What the settings of the reference program begin with."""


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt of the bench; the name is its row in the tables."""

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
    """Median milliseconds of the target's decode by batch width."""
    n: int | str | None = None
    """The draft length, or "auto"; None of plain decoding."""
    shape: str | None = None
    """What drafts may be: "chain", "tree" or "auto"; None of plain decoding."""
    ngram: bool = False
    """Whether n-grams were tried ahead of the draft."""
    by_drafter: dict[str, DrafterStats] = field(default_factory=dict)
    """Counts apart for each that drafted."""
    prefill_tokens: int = 0
    """Of the reference program, which reads the whole prompt each time; here it is in the cache."""
    prefill_ms: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens * 1000.0 / self.generation_ms if self.generation_ms > 0 else 0.0
