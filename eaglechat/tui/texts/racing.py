"""The texts of a race: who runs, its result in a sentence, and what to do about it."""

from __future__ import annotations

from eaglechat.chat.racing import FEWEST_HEATS, Result, Score
from eaglechat.tui.texts.bench import in_short
from eaglechat.tui.texts.wording import drafter, plural, visible
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import NGRAM

_FORK_EXCERPT = 24
"""Characters of the two tokens at which two replies differ first."""


def name(who: Speculation) -> str:
    """A contender in a word or two: `plain`, `auto`, `length 3`, `n-grams`."""
    if not who.enabled:
        return "plain"
    if who.drafter == NGRAM:
        return "n-grams"
    how = AUTO if who.n_draft_max == AUTO else f"length {who.n_draft_max}"
    return how if who.drafter == AUTO else f"{drafter(who.drafter)} {how}"


def sentence(result: Result) -> str:
    """What a race found: of the fastest against plain decoding."""
    best = result.best
    if best is None:
        return "The race was stopped before anything was measured."
    who, by = name(best.who), in_short(best.gain)
    texts = _texts(best, result.tokens)
    match best.verdict:
        case "early":
            return (
                f"The race was stopped too early to tell: {plural(result.n_heats, 'heat')} of at "
                f"least {FEWEST_HEATS}."
            )
        case "plain":
            return f"{who} drafted nothing here: both decoded plainly."
        case "same":
            return f"No difference that could be measured: {who} is {by} as fast as plain; {texts}."
        case "slower":
            return f"Slower than plain: {who} is {by} as fast; {texts}."
        case _:
            return f"{by} faster than plain with {who}; {texts}."


def _texts(score: Score, tokens: int) -> str:
    if score.fork is None:
        return f"same text in {plural(tokens, 'token')}"
    return (
        f"first difference at token {score.fork.index + 1:,}: {_token(score.fork.ours)}, plainly "
        f"{_token(score.fork.plain)}"
    )


def _token(named: str | int | None) -> str:
    """`named` is its text, or its id if it has no text."""
    if named is None:
        return "the end of the reply"
    if isinstance(named, int):
        return f"token {named} (no text)"
    return f"“{visible(named)[:_FORK_EXCERPT]}”"
