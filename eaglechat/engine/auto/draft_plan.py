"""What the controller hands to a round, what it gets back, and what it expects of draft lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eaglechat.engine.auto.acceptance import accept_rate
from eaglechat.wire.records import AutoDraft, AutoReason

_REPAID_OVER = 128
"""Tokens within which drafting must save what it takes the draft to catch up."""
_SPARE, _FAR_AHEAD = 0.5, 1.5
"""Share of a round's loss to keep in hand, unless its rate is so many times that of plain."""


@dataclass(frozen=True)
class DraftPlan:
    """How a round drafts: at most `n` tokens, and which of them are worth verifying.

    `worth[j]` is the least probability that draft tokens 0 .. j are all accepted for token j to
    pay for its place in the batch; `by_probability` turns the draft's own probabilities into
    rates of acceptance. A `whole` draft goes on regardless, to measure its width.
    """

    n: int
    worth: tuple[float, ...]
    by_probability: tuple[float, ...]
    whole: bool
    state: AutoDraft | None
    """What the choice rests on, for the screen; None where nothing was chosen."""

    @property
    def reason(self) -> AutoReason | None:
        return self.state.reason if self.state is not None else None

    def keeps(self, probabilities: Sequence[float]) -> bool:
        """Whether the last of these draft tokens should be verified."""
        return self.whole or self.is_worth(probabilities)

    def is_worth(self, probabilities: Sequence[float]) -> bool:
        """Whether the last of these draft tokens pays for its place in the batch."""
        survival = 1.0
        for probability in probabilities:
            survival *= accept_rate(self.by_probability, probability)
        return survival >= self.worth[len(probabilities) - 1]


PLAIN = DraftPlan(0, (), (), whole=False, state=None)


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


@dataclass(frozen=True)
class Outlook:
    """Expectations by draft length: milliseconds of a round, and tokens a millisecond."""

    times: list[float]
    rates: list[float]
    one_round: float
    """What a round of the longest draft worth considering takes longer than a plain one."""

    def repays(self, n: int, catch_up: float) -> bool:
        """Whether drafts of this length soon save the time the draft needs to catch up."""
        saved = 1.0 / self.rates[0] - 1.0 / self.rates[n]
        return catch_up <= _REPAID_OVER * saved or catch_up == 0.0

    def far_ahead(self, n: int, by: float = _FAR_AHEAD) -> bool:
        """Whether drafts of this length are so much faster than plain decoding that no single
        round matters."""
        return self.rates[n] >= by * self.rates[0]

    def spare(self, n: int) -> float:
        """What the ledger should bear beyond a round of this length. Where drafting is little ahead
        of plain decoding, one long draft that fails may end it for dozens of tokens; short ones
        gain the room for it first."""
        if n == 1 or self.far_ahead(n):
            return 0.0
        return _SPARE * (self.times[n] - self.times[0])


def round_times(
    verify: list[float], draft: list[float], kept: list[float] | None, n_most: int
) -> list[float]:
    """Milliseconds of a round by draft length; `kept` is P(a further token is drafted)."""
    times = [verify[0]]
    in_verify, in_draft, reached = verify[0], 0.0, 1.0
    for n in range(1, n_most + 1):
        in_draft += reached * (draft[n - 1] - (draft[n - 2] if n > 1 else 0.0))
        if kept is not None:
            reached *= kept[n - 1]
        in_verify += reached * (verify[n] - verify[n - 1])
        times.append(in_verify + in_draft)
    return times


def token_rates(accepted: list[float], times: list[float]) -> list[float]:
    """Tokens a millisecond by draft length."""
    rates, tokens, survival = [1.0 / times[0]], 1.0, 1.0
    for rate, time in zip(accepted, times[1:], strict=False):
        survival *= rate
        tokens += survival
        rates.append(tokens / time)
    return rates
