"""A bench without a screen: what is asked, what was measured so far, how long it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eaglechat.engine.bench.measure import BenchReport, SettingResult, report_of
from eaglechat.engine.bench.settings import settings_of
from eaglechat.wire.bench_records import PLAIN, BenchPrompt, BenchRun
from eaglechat.wire.protocol import AUTO, Auto, Bench, BenchProgress, Shape
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT


@dataclass(frozen=True)
class BenchPlan:
    """What to measure."""

    prompts: tuple[BenchPrompt, ...]
    lengths: tuple[int | Auto, ...]
    shape: Shape
    ngram: bool
    repeats: int
    max_tokens: int

    @property
    def replies(self) -> int:
        settings = settings_of(self.lengths, (self.shape,), (self.ngram,))
        return len(self.prompts) * self.repeats * len(settings)

    def request(self) -> Bench:
        return Bench(
            prompts=self.prompts,
            n=self.lengths,
            shapes=(self.shape,),
            ngram=(self.ngram,),
            repeats=self.repeats,
            max_tokens=self.max_tokens,
        )


def parse_lengths(text: str) -> tuple[int | Auto, ...]:
    """Draft lengths such as `0, 3, auto`, each once. Raises ValueError in words."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError("name at least one draft length, such as 3 or auto")
    return tuple(dict.fromkeys(_length(part) for part in parts))


def _length(text: str) -> int | Auto:
    if text.casefold() == AUTO:
        return AUTO
    if not text.isdecimal() or int(text) > N_DRAFT_MAX_LIMIT:
        raise ValueError(f"a draft length is 0 to {N_DRAFT_MAX_LIMIT} or auto, not {text}")
    return int(text)


def parse_count(text: str, what: str) -> int:
    """A whole number of at least 1. Raises ValueError in words."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{what} is a whole number of at least 1, not {text.strip() or 'empty'}")
    return int(text)


@dataclass
class BenchSession:
    """A bench that runs or has run."""

    plan: BenchPlan
    clock: Callable[[], float] = time.monotonic
    runs: list[BenchRun] = field(default_factory=list)
    progress: BenchProgress | None = None
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    @property
    def share_done(self) -> float:
        """Of the replies, the one being written among them as far as it is."""
        progress = self.progress
        under_way = 0.0
        if progress is not None and progress.done == len(self.runs):
            under_way = min(progress.tokens / self.plan.max_tokens, 1.0)
        return min((len(self.runs) + under_way) / self.plan.replies, 1.0)

    @property
    def seconds_left(self) -> float | None:
        """What the rest takes at the pace so far; None before the first reply has ended."""
        done = self.share_done
        if not self.runs or not done:
            return None
        return (self.clock() - self._started) * (1.0 - done) / done

    def report(self) -> BenchReport:
        return report_of(self.runs)


def best_setting(settings: Sequence[SettingResult]) -> SettingResult | None:
    """The draft length of the largest speed-up over its prompts; plain decoding is none."""
    drafting = [result for result in settings if result.setting != PLAIN]
    return max(drafting, key=lambda result: result.speed_up, default=None)


def length_of(result: SettingResult) -> int | Auto:
    """The n_draft_max that a setting of a bench stands for."""
    assert result.n is not None
    return AUTO if result.n == AUTO else int(result.n)
