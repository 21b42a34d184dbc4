"""A draft whose tokens are nearly all refused: it was hardly made for this target."""

from __future__ import annotations

from collections.abc import Mapping

from eaglechat.wire.protocol import PairInfo
from eaglechat.wire.records import NGRAM
from eaglechat.wire.stats import DrafterStats

_FEWEST_ROUNDS, _LEAST_SHARE = 100, 0.05


def of_the_draft(by_drafter: Mapping[str, DrafterStats]) -> DrafterStats:
    """Its counts, without what n-grams found."""
    return sum((by_drafter[name] for name in by_drafter if name != NGRAM), DrafterStats())


def misfit(draft: DrafterStats, info: PairInfo) -> str | None:
    """What to say of a draft that does not fit; None of others, and after too few rounds.

    Every round tests its first token: where hardly any token at all is accepted, nor is that one.
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
