"""What `eaglechat bench` prints."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from eaglechat import paths
from eaglechat.chat.compared import Result, Score
from eaglechat.links.crashes import without
from eaglechat.wire.protocol import AUTO, Hello, PairInfo
from eaglechat.wire.records import NGRAM
from eaglechat.wire.stats import who_drafted
from eaglechat.words import wording
from eaglechat.words.gain import at_most, figure
from eaglechat.words.statistics import of_whole_reply
from eaglechat.words.tables import Row, aligned


def lines(name: str, info: PairInfo, hello: Hello, result: Result, said: str) -> Iterator[str]:
    """`name` is the pair's; `said` is the result in a sentence, if there is one."""
    yield f"{wording.pair_in_short(info, name)}, {_ran_on(info, hello)}, {wording.today()}"
    if not result.scores:
        yield "Nothing was measured."
        return
    if said:
        yield ""
        yield said
    yield ""
    yield "Tokens per second: the median of the repeats, and half their spread"
    yield from _table(_prompt_rows(result))
    yield ""
    yield from _table(_setting_rows(result, info))
    for score in result.scores:
        if score.stats.is_of_whole_reply:
            yield ""
            yield f"{score.name}: {of_whole_reply(score.stats)}; which were tested is not reported"
    if most := at_most(info, paths.state_dir(), result.best):
        yield ""
        yield most


def _ran_on(info: PairInfo, hello: Hello) -> str:
    """Where the numbers come from."""
    if info.server:
        return f"{hello.engine} at {info.server}"
    if hello.engine != "eaglechat":
        return f"{hello.engine} {hello.llama_cpp}"
    crashes = f", {without(info.left_out)} (llama.cpp crashed with it)" if info.left_out else ""
    threads = wording.plural(info.n_threads, "thread")
    return f"{threads}, {', '.join(info.devices) or 'no device named'}{crashes}"


def _prompt_rows(result: Result) -> Iterator[Row]:
    """The heads of the columns, then a row for each prompt: speeds, and of those that drafted for
    it the fastest, with its speed-up and acceptance."""
    scores, is_alone = result.scores, len(result.scores) == 1
    yield [
        "prompt",
        *(score.name for score in scores),
        *([] if is_alone else ["best draft", "speed-up"]),
        *("accepted", "length"),
    ]
    for prompt in result.prompts:
        speeds = [_speed(score.by_prompt[prompt]) for score in scores]
        drafted = [on for score in scores if (on := score.by_prompt[prompt]).stats.drafted]
        if not drafted:
            yield [prompt, *speeds, *([] if is_alone else ["none drafted", "-"]), "-", "-"]
            continue
        best = max(drafted, key=lambda on: on.gain.speed_up)
        yield [
            *(prompt, *speeds),
            *([] if is_alone else [best.name, wording.times(best.gain.speed_up)]),
            wording.percent(best.stats.acceptance_rate),
            wording.two_decimals(best.stats.mean_accepted_length),
        ]


def _speed(on: Score) -> str:
    spread = (max(on.speeds) - min(on.speeds)) / 2
    return f"{median(on.speeds):.1f}" + (f" ±{spread:.1f}" if len(on.speeds) > 1 else "")


def _setting_rows(result: Result, info: PairInfo) -> Iterator[Row]:
    """The heads of the columns, then a row for each contender."""
    is_alone = len(result.scores) == 1
    gain = [] if is_alone else ["speed-up", "worst prompt"]
    yield ["", "drafter", "tok/s", *gain, "length", "accepted"]
    for score in result.scores:
        if not is_alone:
            worst = min(on.gain.speed_up for on in score.by_prompt.values())
            gain = [figure(score.gain.speed_up, score.gain.error), wording.times(worst)]
        yield [
            score.name,
            _drafter(score, info),
            f"{score.tokens_per_second:.1f}",
            *gain,
            wording.two_decimals(score.stats.mean_accepted_length),
            wording.percent(score.stats.acceptance_rate),
        ]


def _drafter(score: Score, info: PairInfo) -> str:
    """Who drafted."""
    if not score.who.enabled:
        return "-"
    name: str = score.who.drafter
    if name == AUTO:
        name = who_drafted(score.stats.by_drafter, info.drafter.kind if info.drafter else NGRAM)
    name = wording.drafter(name)
    return f"{name}, n-grams" if score.who.ngram and name != "n-grams" else name


def _table(rows: Iterator[Row]) -> list[str]:
    listed = [*rows]
    return aligned(listed, range(1, len(listed[0])))
