"""How good a draft is: what the engine measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglechat.engine.loop import Live
from eaglechat.engine.pair import LoadedPair
from eaglechat.engine.prompt import Asked
from eaglechat.gguf.pairing import check_pair
from eaglechat.train.corpus import Sample
from eaglechat.train.settings import PausedError, TrainingError
from eaglechat.wire.protocol import LoadOptions, Sampling, Speculation
from eaglechat.wire.records import ReplyEnd, Round, SpeculationOff
from eaglechat.wire.stats import SpeculationStats

LENGTHS = (3, 5)
_GREEDY = Sampling(temperature=0.0)
_TEXT_PROMPT = 64


@dataclass(frozen=True)
class MeasuredDraft:
    """What greedy replies with drafts of `n_draft_max` tokens gave."""

    n_draft_max: int
    stats: SpeculationStats
    tokens_per_second: float
    plain_tokens_per_second: float
    """The same replies without a draft."""

    @property
    def speed_up(self) -> float:
        return self.tokens_per_second / self.plain_tokens_per_second


def report_samples(held_out: Sequence[Sample], most: int) -> list[Sample]:
    """Held-out samples with different prompts; only greedy replies if there are any."""
    greedy = [sample for sample in held_out if sample.temperature == 0.0]
    chosen: dict[bytes, Sample] = {}
    for sample in sorted(greedy or held_out, key=lambda sample: sample.digest):
        chosen.setdefault(sample.tokens[: sample.spans[0][0] or _TEXT_PROMPT].tobytes(), sample)
    return list(chosen.values())[:most]


def measure(
    target: Path,
    draft: Path,
    samples: Sequence[Sample],
    max_tokens: int,
    *,
    options: LoadOptions,
    on_reply: Callable[[int, int], None],
    paused: Callable[[], bool],
) -> list[MeasuredDraft]:
    """Write the reply to each sample's prompt without drafting, then with each of LENGTHS.

    A reply is as long as the sample's, at most `max_tokens`. The prompt of a text is its first
    tokens. `on_reply` gets the number of replies and their total. Raises PausedError, TrainingError
    if the draft fails in the engine, EngineError.
    """
    pair = LoadedPair(check_pair(target, draft), options)
    counted = {n: SpeculationStats() for n in (0, *LENGTHS)}
    tokens, generation_ms = dict.fromkeys(counted, 0), dict.fromkeys(counted, 0.0)
    try:
        if pair.info.speculation_off:
            raise TrainingError(f"the draft cannot be measured: {pair.info.speculation_off}")
        done, total = 0, len(samples) * len(counted)
        for sample in samples:
            start, end = sample.spans[0]
            start = start or min(_TEXT_PROMPT, len(sample.tokens) // 2)
            prompt, n_reply = tuple(sample.tokens[:start].tolist()), min(end - start, max_tokens)
            for n in (0, *LENGTHS):
                if paused():
                    raise PausedError
                live = Live(Speculation(enabled=n > 0, n_draft_max=max(n, 1)), 0.0)
                for event in pair.generator.reply(
                    Asked(prompt), _GREEDY, live, seed=1, max_tokens=n_reply
                ):
                    if isinstance(event, Round):
                        counted[n] = counted[n].plus(event)
                    elif isinstance(event, SpeculationOff):
                        raise TrainingError(f"the draft fails in the engine: {event.reason}")
                    elif isinstance(event, ReplyEnd):
                        tokens[n] += event.tokens
                        generation_ms[n] += event.timings.generation_ms
                done += 1
                on_reply(done, total)
    finally:
        pair.close()
    speeds = {n: tokens[n] * 1000.0 / (generation_ms[n] or math.inf) for n in counted}
    return [MeasuredDraft(n, counted[n], speeds[n], speeds[0]) for n in LENGTHS]
