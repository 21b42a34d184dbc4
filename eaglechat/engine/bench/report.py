"""What the runs of a bench say: speeds, speed-ups and acceptance, by prompt and by setting."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median

from eaglechat.wire.bench_records import PLAIN, BenchRun
from eaglechat.wire.stats import DrafterStats


@dataclass(frozen=True)
class Speed:
    """Tokens per second of a setting on one prompt, over the repeats."""

    median: float
    low: float
    high: float
    repeats: int


@dataclass(frozen=True)
class PromptResult:
    """One prompt. Acceptance rate and length are those of the fastest setting that drafted."""

    prompt: str
    speeds: Mapping[str, Speed]
    speed_ups: Mapping[str, float]
    """Speed of each setting divided by that of plain decoding in the same repeat: the median over
    the repeats."""
    fastest: str
    speed_up: float
    """Of the fastest setting."""
    acceptance_rate: float | None
    mean_accepted_length: float | None


@dataclass(frozen=True)
class SettingResult:
    """One setting over all prompts that were run with it."""

    setting: str
    n: int | str | None
    shape: str | None
    ngram: bool
    drafter: str | None
    """The drafter that was asked for, "auto" if it chose; None for plain decoding."""
    tokens_per_second: float
    """Mean over the prompts of their medians."""
    speed_up: float
    """Over plain decoding: geometric mean over the prompts."""
    worst_speed_up: float
    acceptance_rate: float | None
    mean_accepted_length: float | None
    by_drafter: Mapping[str, DrafterStats]


@dataclass(frozen=True)
class BenchReport:
    """What a bench measured."""

    prompts: tuple[PromptResult, ...]
    settings: tuple[SettingResult, ...]
    verify_ms: Mapping[int, float]
    """Median milliseconds of a decode of the target, by batch width."""
    runs: tuple[BenchRun, ...]


def report_of(runs: Sequence[BenchRun]) -> BenchReport:
    """Medians over the repeats and means over the prompts. Speed-ups are over plain decoding, or
    over the first setting where nothing was decoded plainly; prompts that were not run with it are
    left out, and so is the repeat that was stopped before all settings had run, unless it is the
    only one: the settings are compared over the same replies."""
    all_runs, runs = runs, _whole_repeats(runs)
    settings = list(dict.fromkeys(run.setting for run in runs))
    base = PLAIN if PLAIN in settings else next(iter(settings), PLAIN)
    names = list(dict.fromkeys(run.prompt for run in runs if run.setting == base))
    prompts = tuple(
        _prompt_result([run for run in runs if run.prompt == name], base) for name in names
    )
    widths: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        # Plain decoding exports no features, so it costs less than a verify batch of width 1.
        if run.setting != PLAIN:
            for width, ms in run.verify_ms.items():
                widths[width].append(ms)
    return BenchReport(
        prompts=prompts,
        settings=tuple(
            _setting_result(setting, prompts, runs)
            for setting in settings
            if any(setting in prompt.speeds for prompt in prompts)
        ),
        verify_ms={width: median(times) for width, times in sorted(widths.items())},
        runs=tuple(all_runs),
    )


def _whole_repeats(runs: Sequence[BenchRun]) -> list[BenchRun]:
    counts = Counter((run.prompt, run.repeat) for run in runs)
    most = max(counts.values(), default=0)
    return [run for run in runs if counts[run.prompt, run.repeat] == most]


def _prompt_result(runs: Sequence[BenchRun], base: str) -> PromptResult:
    by_setting: dict[str, list[BenchRun]] = defaultdict(list)
    for run in runs:
        by_setting[run.setting].append(run)
    speeds = {}
    for setting, some in by_setting.items():
        rates = [run.tokens_per_second for run in some]
        speeds[setting] = Speed(median(rates), min(rates), max(rates), len(rates))
    speed_ups = {setting: _speed_up(some, by_setting[base]) for setting, some in by_setting.items()}

    def speed(setting: str) -> float:
        return speeds[setting].median

    fastest = max(speeds, key=speed)
    drafting = [setting for setting in speeds if any(run.n_drafted for run in by_setting[setting])]
    chosen = by_setting[max(drafting, key=speed)] if drafting else []
    return PromptResult(
        prompt=runs[0].prompt,
        speeds=speeds,
        speed_ups=speed_ups,
        fastest=fastest,
        speed_up=speed_ups[fastest],
        acceptance_rate=_acceptance(chosen),
        mean_accepted_length=_length(chosen),
    )


def _speed_up(runs: Sequence[BenchRun], base: Sequence[BenchRun]) -> float:
    """The speed of `runs` divided by that of `base` in the same repeat: the median."""
    base_speeds = {run.repeat: run.tokens_per_second for run in base}
    return median(
        run.tokens_per_second / base_speeds[run.repeat]
        for run in runs
        if base_speeds.get(run.repeat, 0.0) > 0.0
    )


def _setting_result(
    setting: str, prompts: Sequence[PromptResult], runs: Sequence[BenchRun]
) -> SettingResult:
    with_it = [prompt for prompt in prompts if setting in prompt.speeds]
    gains = [prompt.speed_ups[setting] for prompt in with_it]
    own = [run for run in runs if run.setting == setting]
    return SettingResult(
        setting=setting,
        n=own[0].n,
        shape=own[0].shape,
        ngram=own[0].ngram,
        drafter=own[0].drafter,
        tokens_per_second=fmean(prompt.speeds[setting].median for prompt in with_it),
        speed_up=geometric_mean(gains),
        worst_speed_up=min(gains),
        acceptance_rate=_acceptance(own),
        mean_accepted_length=_length(own),
        by_drafter=by_drafter(own),
    )


def _acceptance(runs: Sequence[BenchRun]) -> float | None:
    tested = sum(run.n_tested for run in runs)
    return sum(run.n_accepted for run in runs) / tested if tested else None


def by_drafter(runs: Sequence[BenchRun]) -> dict[str, DrafterStats]:
    """What each drafter's tokens came to, over all runs."""
    total: dict[str, DrafterStats] = {}
    for run in runs:
        for name, counts in run.by_drafter.items():
            total[name] = total.get(name, DrafterStats()) + counts
    return total


def _length(runs: Sequence[BenchRun]) -> float | None:
    lengths = [run.mean_accepted_length for run in runs if run.mean_accepted_length is not None]
    return fmean(lengths) if lengths else None
