"""Whether drafting is worth it, as far as the runs of a bench tell it from noise."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Literal

from eaglechat.engine.bench.report import BenchReport, SettingResult
from eaglechat.wire.bench_records import PLAIN, REFERENCE
from eaglechat.wire.protocol import AUTO

Advice = Literal["length", "auto", "plain", "repeat"]
"""Draft as many tokens as the best setting; let auto choose; decode plainly; measure again, with
repeats."""


@dataclass(frozen=True)
class MeasuredGain:
    """A speed over that of plain decoding, plus or minus its error; None if nothing was
    repeated."""

    speed_up: float
    error: float | None

    @property
    def is_faster(self) -> bool:
        return self.error is not None and self.speed_up - self.error > 1.0

    @property
    def is_slower(self) -> bool:
        return self.error is not None and self.speed_up + self.error < 1.0


@dataclass(frozen=True)
class PromptGain:
    """What the best setting that drafts gains on a prompt."""

    prompt: str
    setting: str
    gain: MeasuredGain


@dataclass(frozen=True)
class Verdict:
    """What drafting gains: over all prompts with the best setting, and on each with its own
    best."""

    best: SettingResult
    gain: MeasuredGain
    prompts: tuple[PromptGain, ...]

    @property
    def faster(self) -> tuple[PromptGain, ...]:
        """Prompts that gain, the most first."""
        gained = (one for one in self.prompts if one.gain.is_faster)
        return tuple(sorted(gained, key=lambda one: -one.gain.speed_up))

    @property
    def slower(self) -> tuple[PromptGain, ...]:
        return tuple(one for one in self.prompts if one.gain.is_slower)

    @property
    def advice(self) -> Advice:
        if self.gain.error is None:
            return "repeat"
        if self.gain.is_faster and not self.slower and self.best.n != AUTO:
            return "length"
        return "plain" if self.gain.is_slower and not self.faster else "auto"


def judge(report: BenchReport) -> Verdict | None:
    """None if no draft or no plain decoding was measured. Of settings that cannot be told apart,
    auto is the best one, as it follows the text, unless it was slower than plain decoding."""
    drafting = [
        result
        for result in report.settings
        if result.setting != PLAIN and result.n != 0 and not result.setting.startswith(REFERENCE)
    ]
    if not drafting or all(run.setting != PLAIN for run in report.runs):
        return None
    errors = _Errors(report, len(drafting))
    best = max(drafting, key=lambda result: result.speed_up)
    gain = MeasuredGain(best.speed_up, errors.over_prompts(best))
    autos = [result for result in drafting if result.n == AUTO]
    auto = max(autos, key=lambda result: result.speed_up, default=best)
    if gain.error is not None and auto.speed_up >= best.speed_up - gain.error:
        of_auto = MeasuredGain(auto.speed_up, errors.over_prompts(auto))
        if not of_auto.is_slower:
            best, gain = auto, of_auto
    prompts = []
    for result in report.prompts:
        gains = {
            one.setting: result.speed_ups[one.setting]
            for one in drafting
            if one.setting in result.speed_ups
        }
        if gains:
            setting = max(gains, key=gains.__getitem__)
            of_prompt = errors.of_prompt(result.prompt, setting, gains[setting])
            prompts.append(PromptGain(result.prompt, setting, of_prompt))
    return Verdict(best, gain, tuple(prompts))


class _Errors:
    """Errors of speed-ups, from the spread of ratios over the repeats: in 19 of 20 benches of
    settings that gain nothing, the best of them is within its error."""

    def __init__(self, report: BenchReport, n_drafting: int) -> None:
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
        self._n_drafting, self._n_prompts = n_drafting, len(report.prompts)
        samples = [*self._ratios.values()]
        counted = sum(len(sample) - 1 for sample in samples)
        squares = sum((value - fmean(sample)) ** 2 for sample in samples for value in sample)
        self._spread = math.sqrt(squares / counted) if counted else None
        # All ratios of a repeat share its plain reply, which is half of their noise
        # (Satterthwaite's degrees of freedom).
        n_settings = len({setting for _, setting in self._ratios}) or 1
        self._freedom = 4.0 * counted / (n_settings + 1)

    def over_prompts(self, result: SettingResult) -> float | None:
        variances = [
            _variance_of_median(len(sample))
            for (_, setting), sample in self._ratios.items()
            if setting == result.setting
        ]
        share = math.sqrt(sum(variances)) / len(variances)
        return self._error(result.speed_up, share, self._n_drafting)

    def of_prompt(self, prompt: str, setting: str, speed_up: float) -> MeasuredGain:
        share = math.sqrt(_variance_of_median(len(self._ratios[prompt, setting])))
        error = self._error(speed_up, share, self._n_drafting * self._n_prompts)
        return MeasuredGain(speed_up, error)

    def _error(self, speed_up: float, share: float, n_compared: int) -> float | None:
        """`n_compared`: of so many results the best or the worst is judged."""
        if self._spread is None:
            return None
        return speed_up * _quantile(1 - 0.025 / n_compared, self._freedom) * self._spread * share


def _variance_of_median(n: int) -> float:
    """Of `n` values of variance 1: that of the mean for one or two, above it for more."""
    return 1 / n if n < 3 else math.pi / 2 / (n + 0.5)


def _quantile(share: float, freedom: float) -> float:
    """Of Student's distribution, by its expansion around the normal one."""
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
