"""The texts of a comparison: who takes part, its result in a sentence, and what to do about it."""

from __future__ import annotations

from eaglechat.chat.comparing import FEWEST_HEATS, Fork, Result
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import NGRAM
from eaglechat.words import wording
from eaglechat.words.gain import as_far_as_known
from eaglechat.words.wording import drafter, plural, visible

_FORK_EXCERPT = 24
"""Characters of the text around the first difference between two replies."""


def name(who: Speculation) -> str:
    """A contender in a word or two: `plain`, `auto`, `length 3`, `n-grams`."""
    if not who.enabled:
        return "plain"
    if who.drafter == NGRAM:
        return "n-grams"
    how = AUTO if who.n_draft_max == AUTO else f"length {who.n_draft_max}"
    return how if who.drafter == AUTO else f"{drafter(who.drafter)} {how}"


def sentence(result: Result) -> str:
    """What a comparison found: of the fastest against plain decoding."""
    best = result.best
    if best is None:
        return "It was stopped before anything was measured."
    who = name(best.who)
    if best.verdict == "early":
        heats = plural(result.n_heats, "heat")
        return f"It was stopped too early to tell: {heats} of at least {FEWEST_HEATS}."
    if best.verdict == "plain":
        return wording.sentence(f"{who} drafted nothing here: both decoded plainly")
    gain = as_far_as_known(best.gain.speed_up, best.gain.error, f"with {who}")
    other = ", another text than the reply's" if result.is_sampled else ""
    other = f", over {result.n_prompts} prompts" if result.n_prompts > 1 else other
    texts = _difference(best.fork) if best.fork else "both wrote the same"
    return f"{wording.sentence(gain)} Of {plural(result.tokens, 'token')} of each{other}; {texts}."


def _difference(fork: Fork) -> str:
    before = visible(fork.before)[-_FORK_EXCERPT:]
    where = f"after “{before}”" if before else "at the beginning"
    return f"first difference {where}: {_token(fork.ours)}, plain wrote {_token(fork.plain)}"


def both_texts(who: Speculation, fork: Fork) -> str:
    """The reply up to the first difference, and how both went on."""
    ends = f"[plain] {fork.plain_after}\n\n[{name(who)}] {fork.ours_after}"
    return f"{fork.before}▌\n\n{ends}"


def _token(named: str | int | None) -> str:
    """`named` is its text, or its id if it has no text."""
    if named is None:
        return "the end of the reply"
    if isinstance(named, int):
        return f"token {named} (no text)"
    return f"“{visible(named)[:_FORK_EXCERPT]}”"
