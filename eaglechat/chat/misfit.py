"""A draft model whose tokens are nearly all rejected: it was probably made for another target."""

from __future__ import annotations

from collections.abc import Mapping

from eaglechat.wire.protocol import PairInfo
from eaglechat.wire.records import NGRAM
from eaglechat.wire.stats import DrafterStats

_FEWEST_ROUNDS, _LEAST_SHARE = 100, 0.05


def of_the_draft(by_drafter: Mapping[str, DrafterStats]) -> DrafterStats:
    """The counts of the draft model, without those of n-grams."""
    return sum((by_drafter[name] for name in by_drafter if name != NGRAM), DrafterStats())


def misfit(draft: DrafterStats, info: PairInfo) -> str | None:
    """A warning about a draft model that does not fit the target. None if it fits, or if there were
    too few rounds.

    Accepted tokens are divided by rounds: every round verifies at least the first drafted token.
    """
    if draft.rounds < _FEWEST_ROUNDS or draft.accepted >= _LEAST_SHARE * draft.rounds:
        return None
    layers = ", ".join(map(str, info.target_layers))
    reads = f", or was converted to read the wrong layers of it ({layers})" if layers else ""
    return (
        f"Of the draft's tokens, {draft.accepted} were accepted in {draft.rounds} rounds. It was "
        f"probably made for another model than this target{reads}: try another draft, or load the "
        "target alone."
    )
