"""The texts of a comparison: who takes part, its result in a sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from eaglechat.chat.compared import FEWEST_HEATS, Fork, Result, Score
from eaglechat.wire.protocol import AUTO, PLAINLY, Capabilities, Speculation
from eaglechat.wire.records import NGRAM
from eaglechat.words import wording
from eaglechat.words.gain import as_far_as_known, figure
from eaglechat.words.wording import drafter, plural, visible

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
        heats = plural(result.n_heats, "heat")
        return f"Too early to tell: {heats} of at least {FEWEST_HEATS}."
    if best.verdict == "plain":
        return wording.sentence(f"{best.name} drafted nothing here: both decoded plainly")
    how = "the server's own drafting" if best.name == AS_STARTED else best.name
    found = as_far_as_known(best.gain.speed_up, best.gain.error, f"with {how}")
    gain = wording.sentence(found)
    is_sampled = result.temperature > 0.0
    other = ", another text than the reply's" if is_sampled else ""
    if len(result.prompts) > 1:
        at = f" at temperature {result.temperature:g}" if is_sampled else ""
        other = f", over {plural(len(result.prompts), 'prompt')}{at}"
        gain += _apart(result, best)
    texts = _difference(best.fork) if best.fork else "both wrote the same"
    return f"{gain} Of {plural(result.tokens, 'token')} of each{other}; {texts}."


def _apart(result: Result, best: Score) -> str:
    """For which prompts the best contender of each gains or loses, where all together do not."""
    own = {prompt: result.best_on(prompt).gain for prompt in result.prompts}
    faster = [prompt for prompt, gain in own.items() if gain.verdict == "faster"]
    slower = [prompt for prompt, gain in own.items() if gain.verdict == "slower"]
    said = []
    if faster and best.verdict != "faster":
        most = max((own[prompt] for prompt in faster), key=attrgetter("speed_up"))
        up_to = "up to " if len(faster) > 1 else ""
        times = f"{up_to}{figure(most.speed_up, most.error)} as fast as plain"
        said.append(f"{_prompts(faster)}: {times}")
    if slower and best.verdict != "slower":
        said.append(f"{_prompts(slower)}: slower than plain")
    return f" {wording.sentence('; '.join(said))}" if said else ""


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

    def all_figures(score: Score) -> dict[str, Any]:
        return {**figures(score), "error": score.gain.error, "stats": score.stats}

    return {
        "temperature": result.temperature,
        "tokens": result.tokens,
        "heats": result.n_heats,
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
                **all_figures(score),
                "first_difference": score.fork,
                "prompts": [
                    {"prompt": name, "repeats": on.speeds, **all_figures(on)}
                    for name, on in score.by_prompt.items()
                ],
            }
            for score in result.scores
        ],
    }


def _prompts(prompts: Sequence[str]) -> str:
    return f"{len(prompts)} of the prompts" if len(prompts) > 2 else " and ".join(prompts)


def _difference(fork: Fork) -> str:
    before = visible(fork.before)[-_FORK_EXCERPT:]
    where = f"after “{before}”" if before else "at the beginning"
    return f"first difference {where}: {_token(fork.ours)}, plain wrote {_token(fork.plain)}"


def both_texts(best: Score) -> str:
    """The reply up to the first difference, and how both went on; empty without one."""
    if best.fork is None:
        return ""
    ends = f"[plain] {best.fork.plain_after}\n\n[{best.name}] {best.fork.ours_after}"
    return f"{best.fork.before}▌\n\n{ends}"


def _token(text: str | None) -> str:
    return "the end of the reply" if text is None else f"“{visible(text)[:_FORK_EXCERPT]}”"
