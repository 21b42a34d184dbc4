"""What `eaglechat bench` prints, for a terminal or as Markdown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from eaglechat.engine.bench.report import BenchReport, SettingResult, Speed
from eaglechat.links.crashes import without
from eaglechat.wire.protocol import Hello, PairInfo
from eaglechat.wire.records import NGRAM
from eaglechat.wire.stats import SpeculationStats, of_the_draft, who_drafted
from eaglechat.words import wording
from eaglechat.words.bars import bar
from eaglechat.words.gain import times
from eaglechat.words.statistics import of_whole_reply

_SPEED_CELLS, _COST_CELLS = 40, 24
_IN_ASCII = str.maketrans(dict.fromkeys("▌▋▊▉█", "#") | dict.fromkeys("▏▎▍", " "))

Row = Sequence[str]


def lines(
    name: str, info: PairInfo, hello: Hello, report: BenchReport, verdict: str, *, markdown: bool
) -> Iterator[str]:
    """`name` is the pair's."""
    today = time.strftime("%d %B %Y").lstrip("0")
    yield f"{wording.pair_in_short(info, name)}, {_ran_on(info, hello)}, {today}"
    if not report.prompts:
        yield "Nothing was measured."
        return
    if verdict:
        yield ""
        yield verdict
    yield ""
    yield "Tokens per second by setting: the median of the repeats, and half their spread"
    yield from _table([*_prompt_rows(report)], markdown)
    yield ""
    yield from _table([*_setting_rows(report.settings, info)], markdown)
    if info.server:
        yield from _whole_replies(report)
    yield ""
    yield "Tokens per second by setting, and the time to verify its batch"
    yield from (["```"] if markdown else [])
    yield from map(_printable, _chart(report))
    yield from (["```"] if markdown else [])


def _ran_on(info: PairInfo, hello: Hello) -> str:
    """Where the numbers come from."""
    if info.server:
        return f"{hello.engine} at {info.server}"
    if hello.engine != "eaglechat":
        return f"{hello.engine} {hello.llama_cpp}"
    crashes = f", {without(info.left_out)} (llama.cpp crashed with it)" if info.left_out else ""
    threads = wording.plural(info.n_threads, "thread")
    return f"{threads}, {', '.join(info.devices) or 'no device named'}{crashes}"


def _whole_replies(report: BenchReport) -> Iterator[str]:
    """What a server counted that does not say which drafted tokens were tested."""
    for result in report.settings:
        runs = [run for run in report.runs if run.setting == result.setting]
        counted = SpeculationStats(
            drafted=sum(run.n_drafted for run in runs),
            tested=sum(run.n_tested for run in runs),
            accepted=sum(run.n_accepted for run in runs),
        )
        if counted.is_of_whole_reply:
            yield ""
            yield f"{result.setting}: {of_whole_reply(counted)}; which were tested is not reported"


def _prompt_rows(report: BenchReport) -> Iterator[Row]:
    """The heads of the columns, then a row for each prompt: speeds, acceptance, and the fastest
    setting."""
    names = [result.setting for result in report.settings]
    is_alone = len(names) == 1
    yield ["prompt", *names, "accepted", "length", *([] if is_alone else ["fastest", "speed-up"])]
    for result in report.prompts:
        yield [
            result.prompt,
            *(_speed(result.speeds.get(name)) for name in names),
            wording.percent(result.acceptance_rate),
            wording.two_decimals(result.mean_accepted_length),
            *([] if is_alone else [result.fastest, times(result.speed_up)]),
        ]


def _speed(speed: Speed | None) -> str:
    if speed is None:
        return "-"
    spread = f" ±{(speed.high - speed.low) / 2:.1f}" if speed.repeats > 1 else ""
    return f"{speed.median:.1f}{spread}"


def _chart(report: BenchReport) -> Iterator[str]:
    """A line for each setting: its speed as a bar, and the time to verify its batch as another."""
    names = max(len(result.setting) for result in report.settings)
    fastest = max(result.tokens_per_second for result in report.settings)
    slowest_ms = max(report.verify_ms.values(), default=0.0)
    for result in report.settings:
        speed = result.tokens_per_second
        line = f"{result.setting:>{names}} {speed:>7.1f} {bar(speed / fastest, _SPEED_CELLS)}"
        ms = report.verify_ms.get(result.n + 1) if isinstance(result.n, int) else None
        if ms is not None:
            line += f" {ms:>7.2f} ms {bar(ms / slowest_ms, _COST_CELLS)}"
        yield line.rstrip()


def _setting_rows(settings: Sequence[SettingResult], info: PairInfo) -> Iterator[Row]:
    both = any(result.ngram for result in settings)
    is_alone = len(settings) == 1
    yield [
        *("setting", "draft length", "shape", "drafter", "tokens/s"),
        *([] if is_alone else ["speed-up", "worst prompt"]),
        *("length", "accepted"),
        *(["of the draft", "of n-grams"] if both else []),
    ]
    for result in settings:
        what = ["-", "-", "-"]
        if result.n is not None:
            what = [str(result.n), result.shape or "-", _drafter(result, info)]
        found = result.by_drafter.get(NGRAM)
        of_the_drafters = (
            of_the_draft(result.by_drafter).acceptance_rate,
            found.acceptance_rate if found else None,
        )
        yield [
            result.setting,
            *what,
            f"{result.tokens_per_second:.1f}",
            *([] if is_alone else [times(result.speed_up), times(result.worst_speed_up)]),
            wording.two_decimals(result.mean_accepted_length),
            wording.percent(result.acceptance_rate),
            *(map(wording.percent, of_the_drafters) if both else []),
        ]


def _drafter(result: SettingResult, info: PairInfo) -> str:
    """Who drafted with a setting."""
    name = result.drafter
    if name in ("auto", None):
        name = who_drafted(result.by_drafter, info.drafter.kind if info.drafter else "ngram")
    name = wording.drafter(name)
    return f"{name}, n-grams" if result.ngram and name != "n-grams" else name


def _printable(line: str) -> str:
    """The line, with ASCII bars where standard output has no block characters."""
    try:
        line.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return line.translate(_IN_ASCII)
    return line


def _table(rows: Sequence[Row], markdown: bool) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if not markdown:
            yield "  ".join(cells).rstrip()
            continue
        yield f"| {' | '.join(cells)} |"
        if index == 0:
            dashes = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
            yield f"| {' | '.join(dashes)} |"
