"""The report of a bench in text, for the app and for `eaglechat bench`: the verdict, the gain by
prompt, the speed by length, and in full the table by prompt and the chart of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eaglechat.wire.bench_records import AS_STARTED
from eaglechat.wire.records import NGRAM
from eaglechat.words import wording
from eaglechat.words.bars import bar
from eaglechat.words.gain import as_far_as_known, figure, in_words, times

if TYPE_CHECKING:
    from eaglechat.engine.bench.report import BenchReport, SettingResult, Speed
    from eaglechat.engine.bench.verdict import PromptGain, Verdict

Labels = Mapping[str, str]
"""What stands for each setting in a table, by its name and in the order of the columns."""

Span = tuple[str, str]
"""A text and its style: a theme variable of the app."""

_HEAD, _NOTE = "bold", "$foreground-muted"
_SHORTEST_LABEL = 5
_BASIC, _GAIN, _WORST, _FOUND, _COST = 22, 7, 7, 8, 12
"""Cells of a line of the chart besides label and bars: those that are always there, and the columns
that may be left out."""
_SPEED_BAR, _COST_BAR = (4, 40), (6, 24)
_WITH_COST_FROM, _WITH_WORST_FROM = 70, 52


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


def chart(report: BenchReport, labels: Labels, width: int) -> list[list[Span]]:
    """Lines of at most `width` cells: a head, then for each setting its speed as a bar, the
    speed-up, acceptance, and the time to verify its batch. Columns for which there is no room are
    left out."""
    shown = report.settings
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
    drafting = [result for result in shown if result.n]
    best = max(drafting, key=lambda result: result.speed_up, default=None)
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
            (bar(result.tokens_per_second / fastest, speed_cells), "$primary"),
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


def verdict_in_words(verdict: Verdict, labels: Labels) -> str:
    """Whether drafting is worth it for this pair on this machine, and for which prompts. Within the
    error no gain is claimed."""
    gain, how = verdict.gain, f"with {_how(verdict.best, labels)}"
    faster, slower = verdict.faster, verdict.slower
    but = f"; {_named(slower)} {'is' if len(slower) == 1 else 'are'} faster plain" if slower else ""
    said = in_words(gain.speed_up, gain.error, how)
    if gain.verdict == "faster":
        return f"Worth it: {said}{but}."
    over_all = wording.sentence(as_far_as_known(gain.speed_up, gain.error, how))
    if gain.verdict == "slower":
        over_all = f"Not worth it on this machine: {said}."
    elif gain.verdict == "same":
        over_all = f"No gain on this machine: {said}."
    if not faster:
        return over_all
    most = figure(faster[0].gain.speed_up, faster[0].gain.error)
    up_to = "up to " if len(faster) > 1 else ""
    return f"{over_all} Worth it for {_named(faster)}: {up_to}{most} as fast as plain{but}."


def _named(prompts: Sequence[PromptGain]) -> str:
    if len(prompts) > 2:
        return f"{len(prompts)} of the prompts"
    return " and ".join(one.prompt for one in prompts)


def _how(result: SettingResult, labels: Labels) -> str:
    label = labels[result.setting]
    if label == AS_STARTED:
        return "the server's own drafting"
    is_length = isinstance(result.n, int) and label == str(result.n)
    return f"{wording.plural(int(label), 'token')} a round" if is_length else label
