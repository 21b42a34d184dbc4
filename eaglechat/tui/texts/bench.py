"""The report of a bench in text, for the app and for `eaglechat bench`: the table by prompt, the
chart of the settings, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eaglechat.tui.texts import wording
from eaglechat.tui.texts.bars import bar
from eaglechat.wire.bench_records import PLAIN, REFERENCE
from eaglechat.wire.records import NGRAM

if TYPE_CHECKING:
    from eaglechat.engine.bench.report import BenchReport, SettingResult, Speed

Labels = Mapping[str, str]
"""What stands for each setting in a table, by its name and in the order of the columns."""

Span = tuple[str, str]
"""A text and its style: a theme variable of the app."""

_SHORTEST_LABEL = 5
_BASIC, _GAIN, _WORST, _FOUND, _COST = 22, 7, 7, 8, 12
"""Cells of a line of the chart besides label and bars: those that are always there, and the columns
that may be left out."""
_SPEED_BAR, _COST_BAR = (4, 40), (6, 24)
_WITH_COST_FROM, _WITH_WORST_FROM = 70, 52


def length_labels(report: BenchReport) -> Labels:
    """Draft lengths, for a report whose settings differ in nothing else."""
    return {result.setting: _length(result) for result in report.settings}


def _length(result: SettingResult) -> str:
    return result.setting if result.n is None else str(result.n)


def prompt_table(report: BenchReport, labels: Labels) -> list[list[str]]:
    """The heads of the columns, then a row for each prompt: median speeds with half their spread,
    acceptance, and the fastest setting."""
    compared = len(report.settings) > 1
    head = ["prompt", *labels.values(), "accepted", "length"]
    rows = [head + (["fastest", "speed-up"] if compared else [])]
    for result in report.prompts:
        row = [
            result.prompt,
            *(_speed(result.speeds.get(name)) for name in labels),
            wording.percent(result.acceptance_rate),
            wording.two_decimals(result.mean_accepted_length),
        ]
        rows.append(row + ([labels[result.fastest], times(result.speed_up)] if compared else []))
    return rows


def _speed(speed: Speed | None) -> str:
    """The median and, after several repeats, half the spread."""
    if speed is None:
        return "-"
    spread = f" ±{(speed.high - speed.low) / 2:.1f}" if speed.repeats > 1 else ""
    return f"{speed.median:.1f}{spread}"


def times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def chart(report: BenchReport, labels: Labels, width: int) -> list[list[Span]]:
    """Lines of at most `width` cells: a head, then for each setting its speed as a bar, the
    speed-up, acceptance, and the time to verify its batch. Columns for which there is no room are
    left out."""
    shown = [result for result in report.settings if not result.setting.startswith(REFERENCE)]
    if not shown:
        return []
    label_cells = max(_SHORTEST_LABEL, *(len(labels[result.setting]) for result in shown))
    width -= label_cells
    compared = len(shown) > 1
    with_cost = width + _SHORTEST_LABEL >= _WITH_COST_FROM
    with_worst = compared and width + _SHORTEST_LABEL >= _WITH_WORST_FROM
    with_found = with_cost and any(result.ngram for result in shown)
    texts = _BASIC + _GAIN * compared + _WORST * with_worst + _FOUND * with_found
    texts += _COST * with_cost
    cost_cells = _within(_COST_BAR, (width - texts) // 3) if with_cost else 0
    speed_cells = _within(_SPEED_BAR, width - texts - cost_cells)

    def columns(gain: str, worst: str, accepted: str, found: str, length: str) -> str:
        return (
            (f" {gain:>6}" if compared else "")
            + (f" {worst:>6}" if with_worst else "")
            + f" {accepted:>5}"
            + (f" {found:>7}" if with_found else "")
            + f" {length:>6}"
        )

    head = f"{'n':>{label_cells}} {'tok/s':>7} {'':{speed_cells}}"
    head += columns("gain", "worst", "acc.", "n-grams", "length")
    lines: list[list[Span]] = [[(head + ("  verify" if with_cost else ""), "$foreground-muted")]]
    fastest = max(result.tokens_per_second for result in shown)
    slowest_ms = max(report.verify_ms.values(), default=0.0)
    best = best_setting(shown)
    for result in shown:
        style = "$primary bold" if result is best else "$foreground"
        said = columns(
            times(result.speed_up),
            times(result.worst_speed_up),
            wording.percent(result.acceptance_rate),
            wording.percent(acceptance_of_ngrams(result)),
            wording.two_decimals(result.mean_accepted_length),
        )
        line = [
            (f"{labels[result.setting]:>{label_cells}} {result.tokens_per_second:>7.1f} ", style),
            (bar(result.tokens_per_second / fastest, speed_cells), "$token-accepted"),
            (said, style),
        ]
        ms = report.verify_ms.get(result.n + 1) if isinstance(result.n, int) else None
        if with_cost and ms is not None:
            line += [(f"  {ms:>6.2f} ms ", ""), (bar(ms / slowest_ms, cost_cells), "$secondary")]
        lines.append(line)
    return lines


def _within(bounds: tuple[int, int], cells: int) -> int:
    return min(max(cells, bounds[0]), bounds[1])


def acceptance_of_ngrams(result: SettingResult) -> float | None:
    """The acceptance rate of the tokens that n-grams drafted."""
    found = result.by_drafter.get(NGRAM)
    return found.acceptance_rate if found else None


def best_setting(settings: Sequence[SettingResult]) -> SettingResult | None:
    """The setting with the largest speed-up over its prompts, plain decoding excepted."""
    drafting = [result for result in settings if result.setting != PLAIN]
    return max(drafting, key=lambda result: result.speed_up, default=None)


def verdict(best: SettingResult, report: BenchReport) -> str:
    """What the bench found for this pair, in a sentence or two."""
    over = wording.plural(len(report.prompts), "prompt")
    gain = f"{times(best.speed_up)} plain decoding over {over}"
    speed = f"{best.tokens_per_second:.1f} tok/s, {gain}"
    if best.n == 0:
        said = f"Not drafting is fastest here: n_draft_max 0 decodes plainly too ({speed})."
    elif round(best.speed_up, 2) >= 1:
        said = f"Fastest draft length: {_length(best)} ({speed})."
    else:
        said = (
            f"Plain decoding is fastest here. Of the draft lengths, {_length(best)} costs least "
            f"({speed})."
        )
    speeds = (speed for result in report.prompts for speed in result.speeds.values())
    if all(speed.repeats == 1 for speed in speeds):
        said += " Measured once: repeats tell a difference from noise."
    return said
