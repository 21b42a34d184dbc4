"""A result on a card in Markdown that others can cite: what was measured on, how, the figures, and
what they say nothing of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, geometric_mean, stdev

from eaglechat import paths
from eaglechat.chat.compared import Result, Score
from eaglechat.chat.comparing import Comparison
from eaglechat.hub.local import fingerprint
from eaglechat.hub.local.fingerprint import Conditions
from eaglechat.hub.units import format_bytes
from eaglechat.settings.model import EngineSettings
from eaglechat.wire.protocol import Hello, ModelInfo, PairInfo
from eaglechat.words import comparing, wording
from eaglechat.words.gain import at_most, figure
from eaglechat.words.tables import in_markdown
from eaglechat.words.wording import plural

FEWEST_REPEATS = 2
"""Of each reply: a speed has no spread otherwise."""


@dataclass(frozen=True)
class Measured:
    """A comparison that has ended, and what it was of."""

    comparison: Comparison
    info: PairInfo
    hello: Hello
    engine: EngineSettings
    conditions: Conditions
    prompts: str
    """Where they are from, in words."""
    categories: Mapping[str, str] = field(default_factory=dict)
    """Of the prompts by name; one that has none is a category of its own."""

    @property
    def result(self) -> Result:
        return self.comparison.so_far()


def shipped_with(hello: Hello) -> str:
    """The prompts that come with the program, in words."""
    return f"those of eaglechat {hello.eaglechat}, of eight kinds of work"


def why_no_card(hello: Hello, info: PairInfo, engine: EngineSettings) -> str | None:
    """Why there is no card of an engine, whatever it measures; None if there can be one."""
    if info.server or engine.command:
        return (
            "a card names the machine and the files, and those of a server or of an engine "
            "elsewhere are not known here: run eaglechat on that machine"
        )
    if not hello.can.plain:
        return f"a card compares with plain decoding, and {hello.engine} does not decode plainly"
    return None


def why_not(measured: Measured) -> str | None:
    """Why what was measured is no figure to cite, and what to do about it; None if it is one."""
    result, conditions = measured.result, measured.conditions
    if measured.comparison.failure is not None:
        return f"the measurement failed: {measured.comparison.failure.message}"
    if result.best is None or result.best.gain.error is None:
        return "too little was measured for an error of the gain: measure for longer"
    repeats = min(len(on.speeds) for score in result.scores for on in score.by_prompt.values())
    if repeats < FEWEST_REPEATS:
        return "a reply was measured once, so its speed has no spread: measure for longer"
    if conditions.is_busy:
        return (
            f"other programs kept {conditions.others:.1f} of {conditions.n_cpus} CPUs busy: end "
            "them, and measure again"
        )
    for score in result.scores:
        n = score.who.n_draft_max
        if score.who.enabled and isinstance(n, int) and (score.longest or 0) < n:
            return (
                f"{score.name} was not used: the longest draft had "
                f"{plural(score.longest or 0, 'token')}. Measure shorter lengths, or for longer"
            )
    return None


def card(measured: Measured) -> str:
    """The card. Raises OSError if a model file cannot be read."""
    said = [
        _head(measured),
        "## Fingerprint",
        "\n".join(in_markdown([("", ""), *_fingerprint(measured)])),
        "## Protocol",
        "\n".join(f"- {line}" for line in _protocol(measured)),
        "## Numbers",
        "\n".join(in_markdown([*_numbers(measured.result)])),
        *_by_category(measured),
        *filter(None, [at_most(measured.info, paths.state_dir(), measured.result.best)]),
        "## Not to be quoted for",
        "\n".join(f"- {line}" for line in _limits(measured)),
    ]
    return "\n\n".join(said) + "\n"


def _head(measured: Measured) -> str:
    # A model's own name may be one that nobody knows.
    target = Path(measured.info.target.path).stem
    names = [target, *(wording.drafter(one.kind) for one in measured.info.drafters)]
    by = f"Measured by eaglechat {measured.hello.eaglechat} on {wording.today()}."
    return f"# {' + '.join(names)}\n\n{comparing.sentence(measured.result)} {by}"


def _fingerprint(measured: Measured) -> Iterator[tuple[str, str]]:
    info, hello, engine = measured.info, measured.hello, measured.engine
    yield from fingerprint.machine()
    for gpu in fingerprint.gpus():
        if gpu.split(",")[0] in " ".join(info.devices):
            yield "GPU", gpu
    threads = plural(info.n_threads, "thread")
    yield "Runs on", f"{', '.join(info.devices) or 'no device named'}, {threads}"
    yield "llama.cpp", hello.llama_cpp
    yield "Target", _file(info.target)
    for one in info.drafters:
        where = _file(one.file) if one.file is not None else "in the target's file"
        yield "Drafter", f"{wording.drafter(one.kind)}, {where}"
    if not info.drafters:
        yield "Drafter", "n-grams"
    yield "Context", f"{plural(info.n_ctx, 'token')}, KV cache in {engine.kv_type}"
    if info.left_out:
        yield "Left out", ", ".join(info.left_out)


def _file(model: ModelInfo) -> str:
    digest = fingerprint.sha256(Path(model.path))
    size = format_bytes(model.size_bytes)
    return f"`{Path(model.path).name}`, {model.quantization}, {size}, SHA-256 `{digest}`"


def _protocol(measured: Measured) -> Iterator[str]:
    comparison, result = measured.comparison, measured.result
    asked = comparison.asked
    temperature = asked.terms.sampling.temperature
    longest = asked.terms.max_tokens
    prompts = plural(len(result.prompts), "prompt")
    of = f", replies of at most {plural(longest, 'token')}" if longest else ""
    yield f"{prompts} ({measured.prompts}){of}, temperature {temperature:g}"
    yield (
        f"{plural(result.n_heats, 'heat')} of {comparison.heat_tokens} tokens: in each, all take "
        "turns and continue the same text, which plain decoding wrote"
    )
    if asked.whole_replies:
        times = {len(on.speeds) for on in result.scores[0].by_prompt.values()}
        yield f"each reply written {' or '.join(map(str, sorted(times)))} times by each"
    yield "timed: generation alone, without reading the prompt and without loading"
    conditions = measured.conditions
    yield (
        f"load of the machine {conditions.load_before:.2f} before and {conditions.load_after:.2f} "
        f"after; other programs took {conditions.others:.2f} of {conditions.n_cpus} CPUs meanwhile"
    )


def _numbers(result: Result) -> Iterator[Sequence[str]]:
    yield (
        "", "tok/s", "standard deviation / mean", "times plain (95%)", "accepted by place",
        "mean accepted length", "accepted / tested", "accepted / drafted",
        "first difference from plain",
    )  # fmt: skip
    for place, score in enumerate(result.scores):
        stats = score.stats
        yield (
            score.name,
            f"{score.tokens_per_second:.1f}",
            wording.percent(_spread(score)),
            figure(score.gain.speed_up, score.gain.error) if place else "1",
            " ".join(f"{rate:.2f}" for rate in stats.per_position) or "-",
            wording.two_decimals(stats.mean_accepted_length),
            wording.two_decimals(stats.acceptance_rate),
            wording.two_decimals(stats.accepted / stats.drafted if stats.drafted else None),
            _difference(score) if place else "-",
        )


def _spread(score: Score) -> float:
    """Standard deviation over mean, of the speeds on one prompt: the mean over the prompts."""
    return fmean(stdev(on.speeds) / fmean(on.speeds) for on in score.by_prompt.values())


def _difference(score: Score) -> str:
    if score.fork is None:
        return "none"
    return f"token {score.fork.index + 1} of {score.fork.prompt}"


def _by_category(measured: Measured) -> Iterator[str]:
    result = measured.result
    plain, *others = result.scores
    prompts: dict[str, list[str]] = {}
    for prompt in result.prompts:
        prompts.setdefault(measured.categories.get(prompt, prompt), []).append(prompt)
    if len(prompts) < 2:
        return
    rows = [
        [
            category,
            f"{fmean(plain.by_prompt[one].tokens_per_second for one in own):.1f}",
            *(
                f"{geometric_mean(score.by_prompt[one].gain.speed_up for one in own):.2f}"
                for score in others
            ),
        ]
        for category, own in prompts.items()
    ]
    names = [f"times plain, {score.name}" for score in others]
    yield "\n".join(in_markdown([["", "plain tok/s", *names], *rows]))


def _limits(measured: Measured) -> Iterator[str]:
    result, terms = measured.result, measured.comparison.asked.terms
    yield "another machine, quantisation, number of threads or build of llama.cpp"
    if terms.sampling.temperature == 0.0:
        yield "sampled replies: at a temperature above 0, fewer drafted tokens are accepted"
    else:
        yield f"another temperature than {terms.sampling.temperature:g}"
    yield "several users at once, long contexts, or the time until the first token"
    if len(result.prompts) == 1:
        yield "other prompts: only one was measured"
    else:
        yield "a single kind of text: the error covers all prompts together"
    unclear = [score.name for score in result.scores[1:] if score.verdict in ("unclear", "early")]
    if unclear:
        yield f"a gain or a loss with {', '.join(unclear)}: 1.0 lies within the error"
