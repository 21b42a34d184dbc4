"""Measures a pair: the same prompts plainly, with each draft length, and with the automatic one.

Repeats of all settings take turns, so that a slow minute of the machine falls on all of them.
Only generation is timed: the prompt is prefilled once, by a reply that is not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean, geometric_mean, median
from typing import TYPE_CHECKING, TypeVar

from eaglechat.engine.bench.settings import name_of
from eaglechat.engine.generation.live import Live
from eaglechat.wire.bench_records import PLAIN, REFERENCE, BenchPrompt, BenchRun
from eaglechat.wire.errors import BenchFailedError
from eaglechat.wire.protocol import Message, Sampling, Speculation
from eaglechat.wire.records import ReplyEnd, Round, SpeculationOff
from eaglechat.wire.stats import DrafterStats, StatsFold

if TYPE_CHECKING:
    from eaglechat.engine.loading.pair import LoadedPair

_WARM_UP_TOKENS = 4
HEADING = "=== "

T = TypeVar("T")


Write = Callable[[BenchPrompt, Speculation, int], Iterable[object]]
"""Writes a greedy reply of at most so many tokens, as the events of `Generator.reply`."""


def writer(pair: LoadedPair, cancelled: Callable[[], bool]) -> Write:
    """Writes the bench's replies with a loaded pair."""

    def write(prompt: BenchPrompt, speculation: Speculation, max_tokens: int) -> Iterator[object]:
        return pair.generator.reply(
            pair.prompter.prompt(messages_of(prompt)),
            Sampling(temperature=0.0),
            Live(speculation, 0.0),
            seed=0,
            max_tokens=max_tokens,
            cancelled=cancelled,
        )

    return write


def messages_of(prompt: BenchPrompt) -> tuple[Message, ...]:
    """The conversation that a prompt of the bench is."""
    return (Message(role="user", content=prompt.text),)


def measure(
    write: Write,
    prompts: Sequence[BenchPrompt],
    settings: Sequence[Speculation],
    *,
    repeats: range,
    max_tokens: int,
    cancelled: Callable[[], bool],
) -> Iterator[BenchRun]:
    """Yield each run as it ends; a cancelled one is not counted. The first repeat of a prompt comes
    after a reply that warms up.

    Raises BenchFailedError when the draft gives up, DecodeError, PromptError.
    """
    for prompt in prompts:
        if 0 in repeats:
            for _ in write(prompt, Speculation(n_draft_max=1), _WARM_UP_TOKENS):
                pass
        for repeat in repeats:
            for setting in order_of(settings, repeat):
                run = _run(write(prompt, setting, max_tokens), prompt.name, setting, repeat)
                if cancelled():
                    return
                yield run


def order_of(settings: Sequence[T], turn: int) -> list[T]:
    """No setting always follows the same other one: a heavy one may slow the next."""
    first = turn // 2 % len(settings)
    order = [*settings[first:], *settings[:first]]
    return order if turn % 2 == 0 else order[::-1]


def _run(events: Iterable[object], prompt: str, setting: Speculation, repeat: int) -> BenchRun:
    tally = RunTally(prompt, setting, repeat)
    for event in events:
        tally.add(event)
    return tally.run()


class RunTally:
    """Adds up the events of one reply."""

    def __init__(self, prompt: str, setting: Speculation | None, repeat: int) -> None:
        """`setting` is None of a server, which drafts as it was started to."""
        self._of = (prompt, setting, repeat)
        self._fold = StatsFold()
        self._verify_ms: dict[int, list[float]] = defaultdict(list)
        self._end: ReplyEnd | None = None

    def add(self, event: object) -> None:
        """Raises BenchFailedError when the draft gives up."""
        if isinstance(event, Round):
            self._fold.add(event)
            if event.timings.verify_ms is not None:
                self._verify_ms[len(event.drafted) + 1].append(event.timings.verify_ms)
        elif isinstance(event, SpeculationOff):
            prompt, setting, _ = self._of
            raise BenchFailedError(f"{prompt}, n = {name_of(setting)}: {event.reason}")
        elif isinstance(event, ReplyEnd):
            self._end = event

    def run(self, generation_ms: float | None = None) -> BenchRun:
        """The reply, which has ended, in the time it took or the one given."""
        assert self._end is not None
        prompt, setting, repeat = self._of
        drafted = setting if setting is not None and setting.enabled else None
        stats = self._fold.stats()
        return BenchRun(
            prompt=prompt,
            setting=name_of(setting),
            repeat=repeat,
            tokens=self._end.tokens,
            generation_ms=generation_ms or self._end.timings.generation_ms,
            n_drafted=stats.drafted,
            n_tested=stats.tested,
            n_accepted=stats.accepted,
            mean_accepted_length=stats.mean_accepted_length,
            verify_ms={width: median(times) for width, times in sorted(self._verify_ms.items())},
            n=drafted.n_draft_max if drafted else None,
            shape=drafted.shape if drafted else None,
            ngram=drafted.ngram if drafted else False,
            by_drafter=stats.by_drafter,
        )


@dataclass(frozen=True)
class Speed:
    """Tokens per second over the repeats."""

    median: float
    low: float
    high: float
    repeats: int = 1

    @property
    def in_words(self) -> str:
        """With half its spread, where there is one to speak of."""
        if self.repeats == 1:
            return f"{self.median:.1f}"
        return f"{self.median:.1f} ±{(self.high - self.low) / 2:.1f}"


@dataclass(frozen=True)
class PromptResult:
    """A row of the table. Acceptance is that of the fastest setting that drafted."""

    prompt: str
    speeds: Mapping[str, Speed]
    speed_ups: Mapping[str, float]
    """Of each setting over plain: the median over the repeats, each within its own minute."""
    fastest: str
    speed_up: float
    """The fastest setting over plain."""
    acceptance_rate: float | None
    mean_accepted_length: float | None


@dataclass(frozen=True)
class SettingResult:
    """A setting over all prompts it was run on."""

    setting: str
    n: int | str | None
    shape: str | None
    ngram: bool
    tokens_per_second: float
    """Mean of the prompts' medians."""
    speed_up: float
    """Geometric mean over the prompts, against plain."""
    worst_speed_up: float
    of_reference: float | None
    """Geometric mean over the prompts, against the reference program with the same length."""
    acceptance_rate: float | None
    mean_accepted_length: float | None
    by_drafter: Mapping[str, DrafterStats]


@dataclass(frozen=True)
class BenchReport:
    """What the runs say."""

    prompts: tuple[PromptResult, ...]
    settings: tuple[SettingResult, ...]
    verify_ms: Mapping[int, float]
    """By batch width; only widths that a setting ran with."""
    runs: tuple[BenchRun, ...]


def report_of(runs: Sequence[BenchRun]) -> BenchReport:
    """Medians over repeats and means over prompts; prompts without a plain run are left out.

    Where nothing ran plainly, each prompt's first setting stands in its place.
    """
    settings = list(dict.fromkeys(run.setting for run in runs))
    base = PLAIN if PLAIN in settings else next(iter(settings), PLAIN)
    names = list(dict.fromkeys(run.prompt for run in runs if run.setting == base))
    prompts = tuple(
        _prompt_result([run for run in runs if run.prompt == name], base) for name in names
    )
    widths: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        # Plain decoding exports no features: its cost is not that of width 1 in speculation.
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
        runs=tuple(runs),
    )


def _prompt_result(runs: Sequence[BenchRun], base: str) -> PromptResult:
    by_setting: dict[str, list[BenchRun]] = defaultdict(list)
    for run in runs:
        by_setting[run.setting].append(run)
    speeds = {setting: _speed(some) for setting, some in by_setting.items()}
    speed_ups = {setting: _ratio(some, by_setting[base]) for setting, some in by_setting.items()}
    ours = [setting for setting in speeds if not setting.startswith(REFERENCE)]
    fastest = max(ours, key=lambda setting: speeds[setting].median)
    drafting = [setting for setting, some in by_setting.items() if any(r.n_tested for r in some)]
    shown = max(drafting, key=lambda setting: speeds[setting].median, default=None)
    chosen = by_setting[shown] if shown is not None else []
    return PromptResult(
        prompt=runs[0].prompt,
        speeds=speeds,
        speed_ups=speed_ups,
        fastest=fastest,
        speed_up=speed_ups[fastest],
        acceptance_rate=_acceptance(chosen),
        mean_accepted_length=_length(chosen),
    )


def _speed(runs: Sequence[BenchRun]) -> Speed:
    speeds = [run.tokens_per_second for run in runs]
    return Speed(median(speeds), min(speeds), max(speeds), len(speeds))


def _ratio(runs: Sequence[BenchRun], reference: Sequence[BenchRun]) -> float:
    """The median over repeats of the speed against the reference's in the same repeat."""
    beside = {run.repeat: run.tokens_per_second for run in reference}
    return median(
        run.tokens_per_second / beside[run.repeat]
        for run in runs
        if beside.get(run.repeat, 0.0) > 0.0
    )


def _setting_result(
    setting: str, prompts: Sequence[PromptResult], runs: Sequence[BenchRun]
) -> SettingResult:
    with_it = [prompt for prompt in prompts if setting in prompt.speeds]
    gains = [prompt.speed_ups[setting] for prompt in with_it]
    own = [run for run in runs if run.setting == setting]
    reference = f"{REFERENCE} {setting}"
    beside = [
        prompt.speed_ups[setting] / prompt.speed_ups[reference]
        for prompt in with_it
        if reference in prompt.speed_ups
    ]
    return SettingResult(
        setting=setting,
        n=own[0].n,
        shape=own[0].shape,
        ngram=own[0].ngram,
        tokens_per_second=fmean(prompt.speeds[setting].median for prompt in with_it),
        speed_up=geometric_mean(gains),
        worst_speed_up=min(gains),
        of_reference=geometric_mean(beside) if beside else None,
        acceptance_rate=_acceptance(own),
        mean_accepted_length=_length(own),
        by_drafter=by_drafter(own),
    )


def _acceptance(runs: Sequence[BenchRun]) -> float | None:
    tested = sum(run.n_tested for run in runs)
    return sum(run.n_accepted for run in runs) / tested if tested else None


def by_drafter(runs: Sequence[BenchRun]) -> dict[str, DrafterStats]:
    """The counts of all runs together."""
    total: dict[str, DrafterStats] = {}
    for run in runs:
        for name, counts in run.by_drafter.items():
            total[name] = total.get(name, DrafterStats()) + counts
    return total


def _length(runs: Sequence[BenchRun]) -> float | None:
    lengths = [run.mean_accepted_length for run in runs if run.mean_accepted_length is not None]
    return fmean(lengths) if lengths else None


def builtin_prompts() -> list[BenchPrompt]:
    """A prompt for each of eight kinds of work."""
    return _prompts_in("prompts.txt")


def copy_prompts() -> list[BenchPrompt]:
    """Prompts whose answers repeat much of them: edits, corrections, quotations."""
    return _prompts_in("copies.txt")


def _prompts_in(name: str) -> list[BenchPrompt]:
    text = files("eaglechat.engine.bench").joinpath(name).read_text(encoding="utf-8")
    return parse_prompts(text)


def parse_prompts(text: str) -> list[BenchPrompt]:
    """Prompts from a file: each after a line `=== name`; without such a line it is one prompt.

    Raises ValueError naming an empty prompt or a name used twice.
    """
    if not text.startswith(HEADING):
        text = f"{HEADING}prompt\n{text}"
    prompts = []
    for block in f"\n{text}".split(f"\n{HEADING}")[1:]:
        name, _, body = block.partition("\n")
        if not body.strip():
            raise ValueError(f"the prompt {name.strip()!r} is empty")
        prompts.append(BenchPrompt(name.strip(), body.strip()))
    names = [prompt.name for prompt in prompts]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise ValueError(f"two prompts are named {doubled!r}")
    return prompts
