"""What a pair or an engine cannot do, in sentences. A function that returns None says that nothing
stands in the way."""

from __future__ import annotations

from eaglechat.wire.protocol import Hello, PairInfo
from eaglechat.wire.stats import DrafterStats

_FEWEST_ROUNDS, _LEAST_SHARE = 100, 0.05
"""After so many rounds, a draft with fewer accepted tokens per round than this does not fit."""


def off(why: str) -> str:
    return f"Speculation is off: {why}."


def misfit(draft: DrafterStats, info: PairInfo) -> str | None:
    """A warning about a draft model that does not fit the target. None if it fits, if it is the
    target's own, or if there were too few rounds.

    Accepted tokens are divided by rounds: every round verifies at least the first drafted token.
    """
    drafter = info.drafter
    is_in_target = drafter is not None and drafter.file is None
    if is_in_target or draft.rounds < _FEWEST_ROUNDS:
        return None
    if draft.accepted >= _LEAST_SHARE * draft.rounds:
        return None
    layers = ", ".join(map(str, drafter.layers)) if drafter else ""
    reads = f", or was converted to read the wrong layers of it ({layers})" if layers else ""
    return (
        f"Of the draft's tokens, {draft.accepted} were accepted in {draft.rounds} rounds. It was "
        f"probably made for another model than this target{reads}: try another draft, or load the "
        "target alone."
    )


def no_comparison(hello: Hello | None) -> str | None:
    if hello is None or hello.can.plain:
        return None
    return (
        f"{subject(hello)} drafts the way it was started. To compare, name the same model without "
        "a draft as plain_model in its entry in config.toml."
    )


def subject(hello: Hello | None) -> str:
    """The engine at the beginning of a sentence."""
    name = "eaglechat" if hello is None else hello.engine
    return "This server" if name == "this server" else name
