"""Whether drafting is worth it, as far as the runs of a bench tell it from noise."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, stdev

from eaglechat.engine.bench.looks import LEVEL
from eaglechat.engine.bench.report import BenchReport, PromptResult, SettingResult
from eaglechat.wire.bench_records import PLAIN
from eaglechat.wire.gain import MeasuredGain
from eaglechat.wire.protocol import AUTO
from eaglechat.wire.student import student_t


@dataclass(frozen=True)
class PromptGain:
    """What the best setting that drafts gains on a prompt."""

    prompt: str
    gain: MeasuredGain


@dataclass(frozen=True)
class Verdict:
    """What drafting gains: over all prompts with the best setting, and on each with its own
    best."""

    best: SettingResult
    gain: MeasuredGain
    prompts: tuple[PromptGain, ...]

    @property
    def is_certain(self) -> bool:
        return self.gain.verdict != "unclear"

    @property
    def faster(self) -> tuple[PromptGain, ...]:
        """Prompts that gain, the most first."""
        gained = (one for one in self.prompts if one.gain.verdict == "faster")
        return tuple(sorted(gained, key=lambda one: -one.gain.speed_up))

    @property
    def slower(self) -> tuple[PromptGain, ...]:
        return tuple(one for one in self.prompts if one.gain.verdict == "slower")


def judge(report: BenchReport, level: float = LEVEL) -> Verdict | None:
    """None if no draft or no plain decoding was measured. A wrong claim has the probability
    `level`."""
    drafting = [result for result in report.settings if result.setting != PLAIN and result.n != 0]
    if not drafting or all(run.setting != PLAIN for run in report.runs):
        return None
    errors = _Errors(report, len(drafting), level)
    best = max(drafting, key=lambda result: (result.speed_up, result.n == AUTO))
    prompts = []
    for result in report.prompts:
        gains = {
            one.setting: result.speed_ups[one.setting]
            for one in drafting
            if one.setting in result.speed_ups
        }
        if gains:
            setting = max(gains, key=gains.__getitem__)
            prompts.append(PromptGain(result.prompt, errors.of_prompt(result, setting)))
    return Verdict(best, errors.over_prompts(best), tuple(prompts))


def gain_of(report: BenchReport, result: SettingResult) -> MeasuredGain:
    """What one setting gains, if it is not chosen as the best of several."""
    return _Errors(report, 1, LEVEL).over_prompts(result)


class _Errors:
    """Errors of speed-ups.

    Over all prompts, the error is from how much the gains differ between the prompts: the repeats
    of one prompt have the same text, so they are no further prompts, and only make its gain more
    exact. The error of the gain on one prompt is from the spread over its repeats. Both are wide
    enough for the best of all settings.
    """

    def __init__(self, report: BenchReport, n_drafting: int, level: float) -> None:
        plain = {
            (run.prompt, run.repeat): run.tokens_per_second
            for run in report.runs
            if run.setting == PLAIN and run.tokens_per_second
        }
        self._ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
        for run in report.runs:
            base = plain.get((run.prompt, run.repeat))
            if base and run.setting != PLAIN and run.tokens_per_second:
                ratio = math.log(run.tokens_per_second / base)
                self._ratios[run.prompt, run.setting].append(ratio)
        self._report, self._n_drafting, self._level = report, n_drafting, level
        samples = [*self._ratios.values()]
        counted = sum(len(sample) - 1 for sample in samples)
        squares = sum((value - fmean(sample)) ** 2 for sample in samples for value in sample)
        self._spread = math.sqrt(squares / counted) if counted else None
        # All ratios of a repeat share its plain reply, which is half of their noise
        # (Satterthwaite's degrees of freedom).
        n_settings = len({setting for _, setting in self._ratios}) or 1
        self._freedom = int(4 * counted / (n_settings + 1))

    def over_prompts(self, result: SettingResult) -> MeasuredGain:
        prompts = [one for one in self._report.prompts if result.setting in one.speed_ups]
        if len(prompts) == 1:
            return self.of_prompt(prompts[0], result.setting)
        logs = [math.log(one.speed_ups[result.setting]) for one in prompts]
        deviation = stdev(logs) / math.sqrt(len(logs))
        return self._gain(result.speed_up, deviation, self._n_drafting, len(logs) - 1)

    def of_prompt(self, result: PromptResult, setting: str) -> MeasuredGain:
        """Over its repeats, and wide enough for the best of all prompts."""
        speed_up, deviation = result.speed_ups[setting], None
        if self._spread is not None and self._freedom:
            n_repeats = len(self._ratios[result.prompt, setting])
            deviation = self._spread * math.sqrt(_variance_of_median(n_repeats))
        n_compared = self._n_drafting * len(self._report.prompts)
        return self._gain(speed_up, deviation, n_compared, self._freedom)

    def _gain(
        self, speed_up: float, deviation: float | None, n_compared: int, freedom: int
    ) -> MeasuredGain:
        """`deviation` is the standard error of the logarithm; of `n_compared` results the best one
        is judged."""
        if deviation is None:
            return MeasuredGain(speed_up, None)
        reach = student_t(freedom, 1.0 - self._level / n_compared / 2.0) * deviation
        return MeasuredGain(speed_up, speed_up * math.expm1(min(reach, 3.0)))


def _variance_of_median(n: int) -> float:
    """Of `n` values of variance 1: that of the mean for one or two, above it for more."""
    return 1 / n if n < 3 else math.pi / 2 / (n + 0.5)
