"""A result on a card in Markdown that others can cite: what was measured on, how, the figures, and
what they say nothing of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from eaglechat.chat.compared import Result
from eaglechat.chat.comparing import Comparison
from eaglechat.chat.recording import Terms
from eaglechat.hub.local import fingerprint
from eaglechat.hub.units import format_bytes
from eaglechat.links.crashes import without
from eaglechat.settings.model import EngineSettings
from eaglechat.wire.protocol import Hello, ModelInfo, PairInfo
from eaglechat.words import comparing, wording
from eaglechat.words.gain import at_most
from eaglechat.words.tables import Row, in_markdown
from eaglechat.words.wording import plural

_MOST_OTHERS = 0.1
"""A share of the CPUs."""


def shipped_with(hello: Hello) -> str:
    """The prompts that come with the program, in words."""
    return f"those of eaglechat {hello.eaglechat}, of eight kinds of work"


def ran_on(info: PairInfo, hello: Hello) -> str:
    """Where the numbers come from."""
    if info.server:
        return f"{hello.engine} at {info.server}"
    by = "" if hello.engine == "eaglechat" else f"{hello.engine} {hello.llama_cpp}, "
    less = f", {without(info.left_out)}" if info.left_out else ""
    devices = ", ".join(info.devices) or "no device named"
    return f"{by}{plural(info.n_threads, 'thread')}, {devices}{less}"


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


def why_not(comparison: Comparison) -> str | None:
    """Why what was measured is no figure to cite, and what to do about it; None if it is one."""
    result, others = comparison.so_far(), comparison.others
    if comparison.failure is not None:
        return f"the measurement failed: {comparison.failure.message}"
    if result.best is None or result.best.gain.error is None:
        return "too little was measured for an error of the gain: measure for longer"
    if result.best.spread is None:
        return "each prompt had one heat, so a speed has no spread: measure for longer"
    if others > _MOST_OTHERS:
        busy = wording.percent(others)
        return f"other programs kept {busy} of the CPUs busy: end them, and measure again"
    for score in result.scores:
        n = score.who.n_draft_max
        if score.who.enabled and isinstance(n, int) and score.longest < n:
            return (
                f"{score.name} was not used: the longest draft had "
                f"{plural(int(score.longest), 'token')}. Measure shorter lengths, or for longer"
            )
    return None


def card(
    comparison: Comparison, engine: EngineSettings, prompts: str, categories: Mapping[str, str]
) -> str:
    """The card. `prompts` says where they are from; `categories` are those of the prompts by name.
    Raises OSError if a model file cannot be read."""
    result, info, hello = comparison.so_far(), comparison.info, comparison.hello
    # A model's own name may be one that nobody knows.
    names = [Path(info.target.path).stem, *(wording.drafter(one.kind) for one in info.drafters)]
    by_category = [*comparing.category_rows(result, categories)]
    by = f"Measured by eaglechat {hello.eaglechat} on {wording.today()}."
    said = [
        f"# {' + '.join(names)}\n\n{comparing.sentence(result)} {by}",
        "## Fingerprint",
        "\n".join(in_markdown([("", ""), *_fingerprint(info, hello, engine)])),
        "## Protocol",
        "\n".join(f"- {line}" for line in _protocol(comparison, prompts)),
        "## Numbers",
        "\n".join(in_markdown([*_numbers(result)])),
        "\n".join(in_markdown(by_category)),
        *filter(None, [at_most(info, result.best)]),
        "## Not to be quoted for",
        "\n".join(f"- {line}" for line in _limits(result, comparison.asked.terms)),
    ]
    return "\n\n".join(said) + "\n"


def _fingerprint(info: PairInfo, hello: Hello, engine: EngineSettings) -> Iterator[tuple[str, str]]:
    yield from fingerprint.machine()
    for gpu in fingerprint.gpus():
        if gpu.split(",")[0] in " ".join(info.devices):
            yield "GPU", gpu
    yield "Runs on", ran_on(info, hello)
    yield "llama.cpp", hello.llama_cpp
    yield "Target", _file(info.target)
    for one in info.drafters:
        where = _file(one.file) if one.file is not None else "in the target's file"
        yield "Drafter", f"{wording.drafter(one.kind)}, {where}"
    if not info.drafters:
        yield "Drafter", "n-grams"
    yield "Context", f"{plural(info.n_ctx, 'token')}, KV cache in {engine.kv_type}"


def _file(model: ModelInfo) -> str:
    digest = fingerprint.sha256(Path(model.path))
    size = format_bytes(model.size_bytes)
    return f"`{Path(model.path).name}`, {model.quantization}, {size}, SHA-256 `{digest}`"


def _protocol(comparison: Comparison, source: str) -> Iterator[str]:
    result, asked = comparison.so_far(), comparison.asked
    temperature = asked.terms.sampling.temperature
    longest = asked.terms.max_tokens
    prompts = plural(len(result.prompts), "prompt")
    of = f", replies of at most {plural(longest, 'token')}" if longest else ""
    yield f"{prompts} ({source}){of}, temperature {temperature:g}"
    yield (
        f"{plural(len(result.heats), 'heat')} of {comparison.heat_tokens} tokens, at most "
        f"{comparison.in_a_row} of a prompt before the next one: in each, all take turns and "
        "continue the same text, which plain decoding wrote"
    )
    yield "timed: generation alone, without reading the prompt and without loading"
    yield (
        "spread: the standard deviation of the speeds in heats of the same prompt, as a share of "
        "their mean; tok/round: the mean accepted length, 1 + accepted / verify steps"
    )
    before, after = comparison.loads
    yield (
        f"other programs took {wording.percent(comparison.others)} of the CPUs meanwhile; load "
        f"average {before:.1f} before, {after:.1f} after, eaglechat's own threads included"
    )


def _numbers(result: Result) -> Iterator[Row]:
    """What bench prints of each contender, and more."""
    heads, *rows = comparing.setting_rows(result)
    yield [*heads, "accepted by place", "first difference from plain"]
    for row, score in zip(rows, result.scores, strict=True):
        by_place = " ".join(f"{rate:.2f}" for rate in score.stats.per_position) or "-"
        fork = result.fork(score)
        none = "-" if result.temperature > 0.0 else "none"
        difference = f"after {len(fork.before)} characters of {fork.prompt}" if fork else none
        yield [*row, by_place, difference]


def _limits(result: Result, terms: Terms) -> Iterator[str]:
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
