"""A bench's results as they are drawn: speed against draft length, and a table by prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from eaglechat.engine.bench.measure import BenchReport, PromptResult, SettingResult, Speed
from eaglechat.hub.units import format_seconds
from eaglechat.tui.screens.bench.session import BenchPlan, BenchSession, best_setting
from eaglechat.tui.texts import wording
from eaglechat.tui.widgets.meters import bar
from eaglechat.wire.bench_records import PLAIN
from eaglechat.wire.protocol import PairInfo
from eaglechat.wire.records import NGRAM

_TEXTS, _WORST, _COST, _FOUND = 34, 7, 12, 8
"""Cells of a line of the chart without its bars, and of the parts that may be left out."""
_SPEED_BAR, _COST_BAR = (4, 40), (6, 24)
_WITH_COST_FROM, _WITH_WORST_FROM = 70, 52
_LABEL = "$foreground-muted"


class SpeedChart(Widget):
    """Speed against draft length, as wide as there is room."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._report: BenchReport | None = None

    def show(self, report: BenchReport) -> None:
        self._report = report
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._report.settings) + 1 if self._report and self._report.settings else 0

    def render(self) -> Content:
        width = self.content_size.width
        return chart(self._report, width) if self._report else Content("")


def chart(report: BenchReport, width: int) -> Content:
    """A line for each draft length: speed as a bar, what it gains, what verifying its batch costs.
    What does not fit into `width` cells is left out from the right."""
    if not report.settings:
        return Content("")
    with_cost, with_worst = width >= _WITH_COST_FROM, width >= _WITH_WORST_FROM
    with_found = with_cost and any(result.ngram for result in report.settings)
    texts = _TEXTS + _WORST * with_worst + _COST * with_cost + _FOUND * with_found
    cost = _within(_COST_BAR, (width - texts) // 3) if with_cost else 0
    speed = _within(_SPEED_BAR, width - texts - cost)
    lines = [Content.styled(_head(speed, with_worst, with_found, with_cost), _LABEL)]
    fastest = max(result.tokens_per_second for result in report.settings)
    dearest = max(report.verify_ms.values(), default=0.0)
    best = best_setting(report.settings)
    for result in report.settings:
        style = "$primary bold" if result is best else "$foreground"
        line = Content.assemble(
            (f"{_label(result):>5} {result.tokens_per_second:>7.1f} ", style),
            (bar(result.tokens_per_second / fastest, speed), "$token-accepted"),
            (f" {_times(result.speed_up)}", style),
            (f" {_times(result.worst_speed_up)}" if with_worst else "", style),
            f" {wording.percent(result.acceptance_rate):>5}",
            f" {wording.percent(found_rate(result)):>7}" if with_found else "",
            f" {wording.two_decimals(result.mean_accepted_length):>6}",
        )
        ms = report.verify_ms.get(result.n + 1) if isinstance(result.n, int) else None
        if with_cost and ms is not None:
            line = Content.assemble(
                line, f"  {ms:>6.2f} ms ", (bar(ms / dearest, cost), "$secondary")
            )
        lines.append(line)
    return Content("\n").join(lines)


def _head(speed: int, with_worst: bool, with_found: bool, with_cost: bool) -> str:
    worst = f" {'worst':>6}" if with_worst else ""
    found = " n-grams" if with_found else ""
    cost = "  verify" if with_cost else ""
    gain = f"{'n':>5} {'tok/s':>7} {'':{speed}} {'gain':>6}{worst}"
    return f"{gain} {'acc.':>5}{found} {'length':>6}{cost}"


def _label(result: SettingResult) -> str:
    """The draft length; shape and n-grams are the same in all of them."""
    return result.setting if result.n is None else str(result.n)


def found_rate(result: SettingResult) -> float | None:
    """The acceptance rate of what n-grams found."""
    found = result.by_drafter.get(NGRAM)
    return found.acceptance_rate if found else None


def drafts_like(plan: BenchPlan, info: PairInfo) -> str:
    """Of which shape the drafts are, and who drafts."""
    if info.draft is None:
        return "There is no draft: n-grams alone."
    drafter = "n-grams ahead of the draft" if plan.ngram else "the draft alone"
    return f"As in your chat: shape {plan.shape}, {drafter}."


def _within(bounds: tuple[int, int], cells: int) -> int:
    return min(max(cells, bounds[0]), bounds[1])


def _times(speed_up: float) -> str:
    return f"{speed_up:.2f}x".rjust(6)


def columns(report: BenchReport) -> list[str]:
    """The heads of the table by prompt."""
    return ["prompt", *map(_label, report.settings), "accepted", "length", "fastest", "speed-up"]


def rows(report: BenchReport) -> Iterator[list[str]]:
    """The table by prompt: medians of the repeats, with half their spread."""
    labels = {result.setting: _label(result) for result in report.settings}
    for result in report.prompts:
        speeds = (_speed(result.speeds.get(name)) for name in labels)
        yield [result.prompt, *speeds, *_sums(result, labels)]


def _sums(result: PromptResult, labels: Mapping[str, str]) -> list[str]:
    return [
        wording.percent(result.acceptance_rate),
        wording.two_decimals(result.mean_accepted_length),
        labels[result.fastest],
        f"{result.speed_up:.2f}x",
    ]


def _speed(speed: Speed | None) -> str:
    return "-" if speed is None else speed.in_words


def doing(session: BenchSession) -> str:
    """What is being measured, and how long it goes on."""
    progress, plan = session.progress, session.plan
    now = f"{progress.prompt}, {_named(progress.setting)}" if progress else "reading the prompt"
    left = session.seconds_left
    soon = f"about {format_seconds(left)} left" if left is not None else "estimating the time"
    return f"Reply {min(len(session.runs) + 1, plan.replies)} of {plan.replies}: {now} · {soon}"


def _named(setting: str) -> str:
    return setting if setting == PLAIN else f"n = {setting}"


def verdict(best: SettingResult, report: BenchReport) -> str:
    """What the bench says of this pair here, in a sentence or two."""
    over = wording.plural(len(report.prompts), "prompt")
    speed = f"{best.tokens_per_second:.1f} tok/s, {best.speed_up:.2f}x plain decoding over {over}"
    if best.n == 0:
        said = f"Not drafting is fastest here: n_draft_max 0 decodes plainly too ({speed})."
    elif round(best.speed_up, 2) >= 1:
        said = f"Fastest draft length: {_label(best)} ({speed})."
    else:
        said = (
            f"Plain decoding is fastest here. Of the draft lengths, {_label(best)} "
            f"costs least ({speed})."
        )
    if _once(report):
        said += " Measured once: repeats tell a difference from noise."
    return said


def _once(report: BenchReport) -> bool:
    return all(speed.repeats == 1 for result in report.prompts for speed in result.speeds.values())
