"""What a draft does in the real engine: held-out prompts, written plainly and with drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglechat.engine.generation.live import Live
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.gguf.preflight import check_pair
from eaglechat.train.data.corpus import Sample
from eaglechat.train.errors import PausedError, TrainingError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import Sampling, Speculation
from eaglechat.wire.records import ReplyEnd, Round, SpeculationOff
from eaglechat.wire.stats import SpeculationStats, StatsFold

LENGTHS = (3, 5)
_GREEDY = Sampling(temperature=0.0)
_TEXT_PROMPT = 64


@dataclass(frozen=True)
class Measured:
    """Greedy replies with drafts of `n_draft_max` tokens."""

    n_draft_max: int
    stats: SpeculationStats
    tokens_per_second: float
    plain_tokens_per_second: float
    """The same replies without a draft."""

    @property
    def speed_up(self) -> float:
        return self.tokens_per_second / self.plain_tokens_per_second


@dataclass(frozen=True)
class Prompt:
    """A held-out prompt, and how long the reply to it may be."""

    tokens: tuple[int, ...]
    max_tokens: int


def report_samples(held_out: Sequence[Sample], most: int) -> list[Sample]:
    """Held-out samples of different prompts: greedy replies, if there are any."""
    greedy = [sample for sample in held_out if sample.temperature == 0.0]
    chosen: dict[bytes, Sample] = {}
    for sample in sorted(greedy or held_out, key=lambda sample: sample.digest):
        chosen.setdefault(sample.tokens[: sample.spans[0][0] or _TEXT_PROMPT].tobytes(), sample)
    return list(chosen.values())[:most]


def prompt_of(sample: Sample, max_tokens: int) -> Prompt:
    """The sample's prompt, to be answered at the sample's length; of a text, its first tokens."""
    start, end = sample.spans[0]
    start = start or min(_TEXT_PROMPT, len(sample.tokens) // 2)
    return Prompt(tuple(sample.tokens[:start].tolist()), min(end - start, max_tokens))


def measure(
    target: Path,
    draft: Path,
    prompts: Sequence[Prompt],
    *,
    options: LoadOptions,
    on_reply: Callable[[int], None],
    paused: Callable[[], bool],
    lengths: Sequence[int] = LENGTHS,
) -> list[Measured]:
    """Write each prompt's reply plainly and with each draft length, by turns.

    `on_reply` gets the replies done. Raises PausedError, TrainingError where the draft fails in
    the engine, EngineError.
    """
    pair = LoadedPair(check_pair(target, draft), options)
    totals = {n: _Total() for n in (0, *lengths)}
    try:
        if pair.info.speculation_off:
            raise TrainingError(f"the draft cannot be measured: {pair.info.speculation_off}")
        done = 0
        for prompt in prompts:
            for n, total in totals.items():
                if paused():
                    raise PausedError
                live = Live(Speculation(enabled=n > 0, n_draft_max=max(n, 1)), 0.0)
                for event in pair.generator.reply(
                    prompt.tokens, _GREEDY, live, seed=1, max_tokens=prompt.max_tokens
                ):
                    total.add(event)
                done += 1
                on_reply(done)
    finally:
        pair.close()
    plain = totals[0].tokens_per_second
    return [
        Measured(n, totals[n].fold.stats(), totals[n].tokens_per_second, plain) for n in lengths
    ]


class _Total:
    """Adds up the replies of one setting."""

    def __init__(self) -> None:
        self.fold = StatsFold()
        self._tokens = 0
        self._ms = 0.0

    def add(self, event: object) -> None:
        if isinstance(event, Round):
            self.fold.add(event)
        elif isinstance(event, SpeculationOff):
            raise TrainingError(f"the draft fails in the engine: {event.reason}")
        elif isinstance(event, ReplyEnd):
            self._tokens += event.tokens
            self._ms += event.timings.generation_ms

    @property
    def tokens_per_second(self) -> float:
        return self._tokens * 1000.0 / self._ms if self._ms else 0.0
