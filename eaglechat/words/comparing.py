"""The texts of a comparison: who takes part, its result in a sentence, and its figures as JSON and
in tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eaglechat.chat.compared import FEWEST_HEATS, Fork, Result, Score
from eaglechat.wire.protocol import AUTO, PLAINLY, Capabilities, Speculation
from eaglechat.wire.records import NGRAM
from eaglechat.words import wording
from eaglechat.words.gain import figure, in_words
from eaglechat.words.tables import Row
from eaglechat.words.wording import drafter, plural, two_decimals, visible

AS_STARTED = "as started"
"""The name of the drafting of a server that takes no draft length."""
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


def named(contenders: Sequence[Speculation], can: Capabilities) -> dict[str, Speculation]:
    """The contenders by name, on an engine that can do this. Shapes and n-grams are in the names if
    they differ: `tree length 8`, `auto + n-grams`."""
    if not can.draft_length:
        return {name(who) if who == PLAINLY else AS_STARTED: who for who in contenders}
    drafting = [who for who in contenders if not who.is_plain]
    differ_in_shape = len({who.shape for who in drafting}) > 1
    differ_in_ngram = len({who.ngram for who in drafting}) > 1
    found = {}
    for who in contenders:
        shape = {"chain": "", "tree": "tree ", "auto": "any shape, "}[who.shape]
        before = shape if who in drafting and differ_in_shape else ""
        behind = " + n-grams" if who in drafting and differ_in_ngram and who.ngram else ""
        found[f"{before}{name(who)}{behind}"] = who
    return found


def sentence(result: Result) -> str:
    """What a comparison found: of the fastest against plain decoding."""
    best = result.best
    if best is None:
        return "It was stopped before anything was measured."
    if best.verdict == "early":
        heats = plural(len(result.heats), "heat")
        return f"Too early to tell: {heats} of at least {FEWEST_HEATS}."
    if best.verdict == "plain":
        return wording.sentence(f"{best.name} drafted nothing here: both decoded plainly")
    how = "the server's own drafting" if best.name == AS_STARTED else best.name
    gain = wording.sentence(in_words(best.gain.speed_up, best.gain.error, f"with {how}"))
    over = f", over {plural(len(result.prompts), 'prompt')}" if len(result.prompts) > 1 else ""
    texts = f" at temperature {result.temperature:g}"
    if result.temperature == 0.0:
        fork = result.fork(best)
        texts = f"; {_difference(fork) if fork else 'both wrote the same'}"
    return f"{gain} Of {plural(result.tokens, 'token')} of each{over}{texts}."


def _difference(fork: Fork) -> str:
    before = visible(fork.before)[-_FORK_EXCERPT:]
    where = f"after “{before}”" if before else "at the beginning"
    ours, plain = (
        f"“{visible(text)[:_FORK_EXCERPT]}”" if text else "the end of the reply"
        for text in (fork.ours, fork.plain)
    )
    return f"first difference {where}: {ours}, plain wrote {plain}"


def texts(result: Result) -> str:
    """The reply up to the first difference from the fastest, and how both went on; without one,
    the last reply that all continued."""
    if (best := result.best) is not None and (fork := result.fork(best)) is not None:
        return f"{fork.before}▌\n\n[plain] {fork.plain}\n\n[{best.name}] {fork.ours}"
    if not result.heats:
        return ""
    last, base = result.heats[-1], next(iter(result.who))
    return last.before + last.legs[base].text


# The figures, as bench and a card have them


def in_json(result: Result, categories: Mapping[str, str]) -> dict[str, Any]:
    """The figures of a result for `bench --json`. `categories` are those of the prompts by
    name."""

    def figures(score: Score) -> dict[str, Any]:
        stats = score.stats
        return {
            "tokens_per_second": score.tokens_per_second,
            "speed_up": score.gain.speed_up,
            # Acceptance by both definitions that are in use.
            "accepted_of_drafted": stats.accepted / stats.drafted if stats.drafted else None,
            "accepted_of_tested": stats.acceptance_rate,
            "mean_accepted_length": stats.mean_accepted_length,
        }

    return {
        "temperature": result.temperature,
        "tokens": result.tokens,
        "heats": len(result.heats),
        "summary": [
            {
                "category": category,
                "setting": score.name,
                "samples": len(prompts),
                **figures(score.over(prompts)),
            }
            for category, prompts in result.by_category(categories).items()
            for score in result.scores
        ],
        "settings": [
            {
                "setting": score.name,
                "speculation": score.who,
                **figures(score),
                "error": score.gain.error,
                "stats": score.stats,
                "first_difference": result.fork(score),
                "prompts": [
                    {"prompt": name, **figures(on)} for name, on in score.by_prompt.items()
                ],
            }
            for score in result.scores
        ],
    }


def category_rows(result: Result, categories: Mapping[str, str]) -> Iterator[Row]:
    """The speed of the first contender in each category, and how many times as fast the others
    were. `categories` are those of the prompts by name."""
    base, *others = result.scores
    yield ["", f"{base.name} tok/s", *(score.name for score in others)]
    for category, prompts in result.by_category(categories).items():
        gains = [wording.times(score.over(prompts).gain.speed_up) for score in others]
        yield [category, f"{base.over(prompts).tokens_per_second:.1f}", *gains]


def setting_rows(result: Result) -> Iterator[Row]:
    """A row for each contender, over all prompts."""
    yield ["", "tok/s", "spread", "times plain", "tok/round", "accepted / tested", "/ drafted"]
    for score in result.scores:
        stats, gain = score.stats, figure(score.gain.speed_up, score.gain.error)
        if score.name == score.base:
            gain = "1" if score.who == PLAINLY else "-"
        yield [
            score.name,
            f"{score.tokens_per_second:.1f}",
            "-" if score.spread is None else wording.percent(score.spread),
            gain,
            two_decimals(stats.mean_accepted_length),
            two_decimals(stats.acceptance_rate),
            two_decimals(stats.accepted / stats.drafted if stats.drafted else None),
        ]
