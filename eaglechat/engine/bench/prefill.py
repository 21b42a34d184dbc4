"""Measures prefill: by the target alone, and with everything that the draft needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from eaglechat.engine.bench.measure import Write
from eaglechat.wire.bench_records import PLAIN, BenchPrompt, BenchRun
from eaglechat.wire.errors import BenchFailedError
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import ReplyEnd, Round, SpeculationOff, summed

DRAFTING = "drafting"
"""The setting in which every token's features are exported and read into the draft's KV cache."""

_OTHER = BenchPrompt("", ".")
"""A prompt that is read in between, so that nothing of the measured one is in the KV cache."""


@dataclass(frozen=True)
class PrefillRun:
    """One prefill of a prompt. `setting` is PLAIN or DRAFTING."""

    prompt: str
    setting: str
    repeat: int
    tokens: int
    ms: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens * 1000.0 / self.ms if self.ms > 0 else 0.0


@dataclass(frozen=True)
class PrefillResult:
    """Medians of one prompt in tokens per second; None for what was not measured."""

    prompt: str
    tokens: int
    plain: float | None
    drafting: float | None
    reference: float | None


def measure_prefill(
    write: Write, prompt: BenchPrompt, repeat: int, *, cancelled: Callable[[], bool]
) -> Iterator[PrefillRun]:
    """Measure the prefill of a prompt with both settings; a cancelled run is not counted.

    Raises BenchFailedError when the draft gives up, DecodeError, PromptError.
    """
    plain = Speculation(enabled=False)
    for setting, speculation in ((PLAIN, plain), (DRAFTING, Speculation(n_draft_max=1))):
        for _ in write(_OTHER, plain, 1):
            pass
        catch_up_ms, end = None, None
        # Two tokens, because nothing is drafted for a reply of one.
        for event in write(prompt, speculation, 2):
            if isinstance(event, Round) and catch_up_ms is None:
                # The draft reads the last features of the prompt when it first drafts.
                catch_up_ms = summed((event.timings.process_ms, event.timings.draft_ms))
            elif isinstance(event, SpeculationOff):
                raise BenchFailedError(f"{prompt.name}, prefill: {event.reason}")
            elif isinstance(event, ReplyEnd):
                end = event
        if cancelled():
            return
        assert end is not None
        yield PrefillRun(
            prompt=prompt.name,
            setting=setting,
            repeat=repeat,
            tokens=end.timings.prefill_tokens,
            ms=end.timings.prefill_ms + (catch_up_ms or 0.0),
        )


def prefill_results(
    ours: Sequence[PrefillRun], reference: Sequence[BenchRun]
) -> tuple[PrefillResult, ...]:
    """Medians by prompt, beside those of the reference program's runs."""
    results = []
    for name in dict.fromkeys(run.prompt for run in ours):
        own = [run for run in ours if run.prompt == name]
        theirs = [
            run.prefill_tokens * 1000.0 / run.prefill_ms
            for run in reference
            if run.prompt == name and run.prefill_ms > 0
        ]
        results.append(
            PrefillResult(
                prompt=name,
                tokens=own[0].tokens,
                plain=_median([run.tokens_per_second for run in own if run.setting == PLAIN]),
                drafting=_median([run.tokens_per_second for run in own if run.setting == DRAFTING]),
                reference=_median(theirs),
            )
        )
    return tuple(results)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
