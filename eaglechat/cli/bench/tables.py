"""The bench's tables and chart as lines of text, for a terminal or for Markdown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from eaglechat.chat.misfit import of_the_draft
from eaglechat.wire.bench_records import REFERENCE
from eaglechat.wire.left_out import without
from eaglechat.wire.records import NGRAM

if TYPE_CHECKING:
    from eaglechat.engine.bench.measure import BenchReport, PromptResult, SettingResult, Speed
    from eaglechat.engine.bench.prefill import PrefillResult
    from eaglechat.wire.protocol import Hello, PairInfo

_BAR = 28
_COST_BAR = 20

Row = Sequence[str]


def lines(
    info: PairInfo,
    hello: Hello,
    report: BenchReport,
    prefills: Sequence[PrefillResult],
    *,
    markdown: bool,
) -> Iterator[str]:
    """Everything the bench prints."""
    today = time.strftime("%d %B %Y").lstrip("0")
    target = f"{info.target.name} {info.target.quantization}".strip()
    yield f"{target}, {_ran_on(info, hello)}, {today}"
    if not report.prompts:
        yield "Nothing was measured."
        return
    names = [result.setting for result in report.settings]
    yield ""
    yield "Tokens per second by setting: the median of the repeats, and half their spread"
    yield from _table(_prompt_rows(report.prompts, names), markdown)
    yield ""
    yield from _table(_setting_rows(report.settings, _drafters(info)), markdown)
    yield ""
    yield "Tokens per second by setting, and what verifying its batch takes"
    yield from (["```"] if markdown else [])
    yield from _chart(report)
    yield from (["```"] if markdown else [])
    if prefills:
        yield ""
        yield "Prompt tokens read per second: by the target alone, and with features for the draft"
        yield from _table(_prefill_rows(prefills), markdown)


def _ran_on(info: PairInfo, hello: Hello) -> str:
    """Where the numbers come from."""
    if info.server:
        return f"{hello.engine} at {info.server}"
    if hello.engine != "eaglechat":
        return f"{hello.engine} {hello.llama_cpp}"
    crashes = f", {without(info.left_out)} (it crashes)" if info.left_out else ""
    return f"{info.n_threads} threads, {', '.join(info.devices) or 'no device named'}{crashes}"


def _prompt_rows(prompts: Sequence[PromptResult], names: Sequence[str]) -> Iterator[Row]:
    compared = ["fastest", "speed-up"] if len(names) > 1 else []
    yield ["prompt", *names, "accepted", "length", *compared]
    for result in prompts:
        yield [
            result.prompt,
            *(_speed(result.speeds.get(name)) for name in names),
            _share(result.acceptance_rate),
            _number(result.mean_accepted_length),
            *([result.fastest, f"{result.speed_up:.2f}x"] if compared else []),
        ]


def _setting_rows(settings: Sequence[SettingResult], drafters: tuple[str, str]) -> Iterator[Row]:
    compared = any(result.of_reference is not None for result in settings)
    both = any(result.ngram for result in settings)
    is_alone = len(settings) == 1
    yield [
        *("setting", "draft length", "shape", "drafter", "tokens/s"),
        *([] if is_alone else ["speed-up", "worst prompt"]),
        *("length", "accepted"),
        *(["of the draft", "of n-grams"] if both else []),
        *(["of the reference"] if compared else []),
    ]
    for result in settings:
        yield [
            result.setting,
            *_what(result, drafters),
            f"{result.tokens_per_second:.1f}",
            *([] if is_alone else [f"{result.speed_up:.2f}x", f"{result.worst_speed_up:.2f}x"]),
            _number(result.mean_accepted_length),
            _share(result.acceptance_rate),
            *(_by_drafter(result) if both else []),
            *([_number(result.of_reference)] if compared else []),
        ]


def _drafters(info: PairInfo) -> tuple[str, str]:
    """Who drafts without n-grams, and with them."""
    return "draft", "draft, n-grams" if info.draft else "n-grams"


def _what(result: SettingResult, drafters: tuple[str, str]) -> Row:
    """Draft length, shape, and who was asked to draft."""
    if result.n is None:
        return ["-", "-", "-"]
    return [str(result.n), result.shape or "-", drafters[result.ngram]]


def _by_drafter(result: SettingResult) -> Row:
    """The acceptance rate of the draft's tokens, and of those that n-grams found."""
    found = result.by_drafter.get(NGRAM)
    return [
        _share(of_the_draft(result.by_drafter).acceptance_rate),
        _share(found.acceptance_rate if found else None),
    ]


def _prefill_rows(prefills: Sequence[PrefillResult]) -> Iterator[Row]:
    compared = any(result.reference is not None for result in prefills)
    yield [
        *("prompt", "tokens", "plain", "with features"),
        *(["reference", "of the reference"] if compared else []),
    ]
    for result in prefills:
        ratio = None
        if result.drafting is not None and result.reference is not None:
            ratio = result.drafting / result.reference
        yield [
            *(result.prompt, str(result.tokens)),
            *(_whole(result.plain), _whole(result.drafting)),
            *([_whole(result.reference), _number(ratio)] if compared else []),
        ]


def _chart(report: BenchReport) -> Iterator[str]:
    shown = [result for result in report.settings if not result.setting.startswith(REFERENCE)]
    fastest = max(result.tokens_per_second for result in shown)
    dearest = max(report.verify_ms.values(), default=0.0)
    names = max(6, *(len(result.setting) for result in shown))
    for result in shown:
        line = (
            f"{result.setting:>{names}} {_bar(result.tokens_per_second / fastest, _BAR)} "
            f"{result.tokens_per_second:7.1f}"
        )
        width = result.n + 1 if isinstance(result.n, int) else None
        cost = report.verify_ms.get(width) if width is not None else None
        if cost is not None:
            line += f"   {width:>2} wide {_bar(cost / dearest, _COST_BAR)} {cost:.2f} ms"
        yield line.rstrip()


def _bar(share: float, length: int) -> str:
    full = max(1, round(share * length))
    encoding = sys.stdout.encoding or "ascii"
    try:
        "█".encode(encoding)
    except UnicodeEncodeError:
        return ("#" * full).ljust(length)
    return ("█" * full).ljust(length)


def _table(rows: Iterator[Row], markdown: bool) -> Iterator[str]:
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for index, row in enumerate(table):
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


def _speed(speed: Speed | None) -> str:
    return "-" if speed is None else speed.in_words


def _share(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.0%}"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
