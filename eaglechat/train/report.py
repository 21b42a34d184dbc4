"""How good a draft is: what training predicts, and what the engine measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from eaglechat.engine.drafters.pairing import check_pair
from eaglechat.engine.generation.live import Live
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.train.batches import Features, TrainingBatch, assemble, on_device
from eaglechat.train.corpus import Sample
from eaglechat.train.network import TrainingSetup, Unrolled, Weights
from eaglechat.train.settings import PausedError, TrainingError
from eaglechat.train.target import HEAD
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import Sampling, Speculation
from eaglechat.wire.records import ReplyEnd, Round, SpeculationOff
from eaglechat.wire.stats import SpeculationStats, StatsFold

_CHUNK_ROWS = 512


@dataclass(frozen=True)
class Prediction:
    """Counts over the predicted rounds; the definitions are those of `wire/stats.py`."""

    rounds: int
    tested_at: tuple[int, ...]
    accepted_at: tuple[int, ...]

    @property
    def mean_accepted_length(self) -> float:
        return 1.0 + sum(self.accepted_at) / max(self.rounds, 1)

    @property
    def per_position(self) -> tuple[float, ...]:
        pairs = zip(self.accepted_at, self.tested_at, strict=True)
        return tuple(accepted / tested for accepted, tested in pairs if tested)


def predict(
    setup: TrainingSetup,
    weights: Weights,
    samples: Sequence[Sample],
    features: Features,
    *,
    n_draft_max: int,
    max_tokens: int,
    paused: Callable[[], bool],
) -> Prediction:
    """Predict what the engine will accept, by replaying held-out samples round by round.

    A draft of the text's next tokens is accepted up to the first one that differs, and the next
    round begins after that: the same rounds, positions and counts as in the engine, computed with
    the training code's forward pass. Only the first `max_tokens` of a reply count, because a long
    greedy reply repeats itself. Raises PausedError.
    """
    tested, accepted = np.zeros(n_draft_max, int), np.zeros(n_draft_max, int)
    rounds = 0
    for sample in samples:
        if paused():
            raise PausedError
        read = assemble([sample], features, setup.draft_ids, n_draft_max)
        batch = on_device(read, setup.device)
        with torch.no_grad():
            right = _right_in_a_row(setup, weights, batch, n_draft_max)
        for start, end in sample.spans:
            base, last = max(start - 2, 0), min(end, start + max_tokens) - 2
            while base < last:
                n_accepted = min(int(right[base]), last - base)
                n_tested = min(n_accepted + 1, n_draft_max, last - base)
                tested[:n_tested] += 1
                accepted[:n_accepted] += 1
                rounds += 1
                base += n_accepted + 1
    return Prediction(rounds, tuple(tested.tolist()), tuple(accepted.tolist()))


def _right_in_a_row(
    setup: TrainingSetup, weights: Weights, batch: TrainingBatch, n_draft_max: int
) -> npt.NDArray[np.int64]:
    """[rows]: how many first tokens of a draft from each row agree with the text."""
    head = weights[HEAD].to(setup.dtype)
    unrolled = Unrolled(weights, setup, batch.chains)
    count = torch.zeros(len(batch.max_steps), dtype=torch.int64, device=setup.device)
    step = unrolled.first()
    for number in range(1, n_draft_max + 1):
        labels = batch.labels[step.bases + number + 1]
        hits = _likeliest(step.normed, head) == labels
        count[step.bases[hits]] = number
        going_on = torch.nonzero(hits & (batch.max_steps[step.bases] > number)).squeeze(1)
        if number == n_draft_max or not len(going_on):
            break
        step = unrolled.following(number + 1, step, going_on)
    return np.asarray(count.cpu().numpy())


def _likeliest(states: Any, head: Any) -> Any:
    """The likeliest token of each row; in float32, because a lower precision has ties."""
    exact = head.float()
    return torch.cat([(some.float() @ exact.T).argmax(-1) for some in states.split(_CHUNK_ROWS)])


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
    folds = {n: StatsFold() for n in (0, *LENGTHS)}
    tokens, generation_ms = dict.fromkeys(folds, 0), dict.fromkeys(folds, 0.0)
    try:
        if pair.info.speculation_off:
            raise TrainingError(f"the draft cannot be measured: {pair.info.speculation_off}")
        done, total = 0, len(samples) * len(folds)
        for sample in samples:
            start, end = sample.spans[0]
            start = start or min(_TEXT_PROMPT, len(sample.tokens) // 2)
            prompt, n_reply = tuple(sample.tokens[:start].tolist()), min(end - start, max_tokens)
            for n, fold in folds.items():
                if paused():
                    raise PausedError
                live = Live(Speculation(enabled=n > 0, n_draft_max=max(n, 1)), 0.0)
                for event in pair.generator.reply(
                    prompt, _GREEDY, live, seed=1, max_tokens=n_reply
                ):
                    if isinstance(event, Round):
                        fold.add(event)
                    elif isinstance(event, SpeculationOff):
                        raise TrainingError(f"the draft fails in the engine: {event.reason}")
                    elif isinstance(event, ReplyEnd):
                        tokens[n] += event.tokens
                        generation_ms[n] += event.timings.generation_ms
                done += 1
                on_reply(done, total)
    finally:
        pair.close()
    speeds = {n: tokens[n] * 1000.0 / (generation_ms[n] or math.inf) for n in folds}
    return [MeasuredDraft(n, folds[n].stats(), speeds[n], speeds[0]) for n in LENGTHS]
