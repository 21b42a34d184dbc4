"""What auto hands to a round, and what it gets back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eaglechat.engine.auto.acceptance import accept_rate
from eaglechat.wire.records import AutoDraft, AutoReason


@dataclass(frozen=True)
class DraftPlan:
    """How a round drafts: at most `n` tokens, and which of them are worth verifying.

    `worth[j]` is the least probability that draft tokens 0 .. j are all accepted for token j to
    pay for its place in the batch; `by_probability` turns the draft's own probabilities into
    rates of acceptance.
    """

    n: int
    worth: tuple[float, ...] = ()
    by_probability: tuple[float, ...] = ()
    state: AutoDraft | None = None
    """What the choice rests on, for the screen; None where nothing was chosen."""

    @property
    def is_looked_up(self) -> bool:
        """Whether the tokens are those that n-grams found."""
        return self.state is not None and self.state.reason is AutoReason.LOOKED_UP

    def keeps(self, probabilities: Sequence[float], n_others: int) -> bool:
        """Whether the last token of a path with these probabilities should be verified, beside so
        many others."""
        survival = 1.0
        for probability in probabilities:
            survival *= accept_rate(self.by_probability, probability)
        return survival >= self.worth[n_others]


PLAIN = DraftPlan(0)


@dataclass(frozen=True)
class Observation:
    """What a planned round did. Times in milliseconds."""

    n_past: int
    """Tokens in the KV cache before the round."""
    n_waiting: int
    """Rows of features the draft had not taken in before the round."""
    probabilities: tuple[float, ...]
    """The draft's own probability of each token it drafted."""
    n_tested: int
    n_accepted: int
    n_tokens: int
    draft_ms: float
    verify_ms: float
    """All of the round but drafting."""
    found: tuple[float, ...] = ()
    """The probability of each token that n-grams found, whether they were proposed or not."""
    n_right: int = 0
    """How many of these the target went on to choose, as far as it wrote."""
