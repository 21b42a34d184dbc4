"""Teaches a draft: batches, the unrolled loss, the optimiser, checkpoints that resume exactly."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from eaglechat.train.batches import Features, Place, TrainingBatch, prepared
from eaglechat.train.corpus import Sample
from eaglechat.train.loss import HeadLoss, teacher_distribution
from eaglechat.train.network import HEAD, Lesson, Unrolled, Weights
from eaglechat.train.settings import Budget, PausedError, TrainingError

_WORTH_IT = 1.3
_SIZE = 768


def best_device() -> Any:
    """The first CUDA device, else a Mac's GPU, else the processor."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    # All operations of training have kernels for it (native_functions.yaml of torch 2.13).
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def best_type(device: Any) -> Any:
    """bfloat16 where the device surely multiplies matrices of it faster than of float32, else
    float32."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "mps":
        # Before macOS 14 torch refuses bfloat16 there.
        return torch.float32
    slow, fast = (_seconds(dtype) for dtype in (torch.float32, torch.bfloat16))
    return torch.bfloat16 if slow > fast * _WORTH_IT else torch.float32


def _seconds(dtype: Any) -> float:
    """The shortest of some products: neighbours on the machine only lengthen them."""
    matrix = torch.ones(_SIZE, _SIZE, dtype=dtype)
    times = []
    for _ in range(8):
        started = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - started)
    return min(times)


_WARM_UP = 0.02
_FINAL_RATE = 0.02
"""Learning rate at the end, as a share of the highest."""
_CLIP = 1.0
_CHECKPOINT_EVERY_S = 120.0
_RECENT_BATCHES = 50


@dataclass
class State:
    """How far a run is."""

    batches: int = 0
    tokens: int = 0
    seconds: float = 0.0
    place: Place = field(default_factory=Place)


@dataclass(frozen=True)
class Figures:
    """What a batch showed, before it was learnt from: the draft against the text.

    Position i was tested where every position before it was right; its rate is hit / tested.
    """

    loss: float
    tested: tuple[int, ...]
    hit: tuple[int, ...]


class RecentFigures:
    """The figures of the last batches together, to be shown."""

    def __init__(self) -> None:
        self._recent: deque[tuple[State, Figures]] = deque(maxlen=_RECENT_BATCHES)

    def add(self, state: State, figures: Figures) -> None:
        self._recent.append((state, figures))

    def note(self) -> str:
        """Agreement with the text at each position, given the positions before it; speed."""
        rates = []
        for position in range(max(len(figures.tested) for _, figures in self._recent)):
            tested = sum(_at(figures.tested, position) for _, figures in self._recent)
            hit = sum(_at(figures.hit, position) for _, figures in self._recent)
            rates.append(f"{100 * hit / tested:.0f}%" if tested else "-")
        (first, _), (last, _) = self._recent[0], self._recent[-1]
        seconds = last.seconds - first.seconds
        speed = f", {(last.tokens - first.tokens) / seconds:,.0f} tokens/s" if seconds else ""
        return f"right {' '.join(rates)}, {last.tokens:,} tokens{speed}"


def _at(counts: tuple[int, ...], position: int) -> int:
    return counts[position] if position < len(counts) else 0


class Trainer:
    """One run: the weights, the optimiser and how far it is."""

    def __init__(self, lesson: Lesson, weights: Weights) -> None:
        self.lesson = lesson
        self.weights: dict[str, Any] = {
            name: weight.to(lesson.device, torch.float32).requires_grad_()
            for name, weight in weights.items()
        }
        self._optimizers = self._choose_optimizers()
        self.state = State()

    def _choose_optimizers(self) -> list[Any]:
        """Muon (arXiv 2502.16982) for the matrices between the features and the head, where the
        device computes in bfloat16, as it does; AdamW for all else."""
        recipe, head = self.lesson.recipe, self.weights[HEAD]
        vectors = [weight for weight in self.weights.values() if weight.ndim == 1]
        inner = [
            weight for name, weight in self.weights.items() if weight.ndim > 1 and name != HEAD
        ]
        rate, decay = recipe.learning_rate, recipe.weight_decay
        with_muon = self.lesson.dtype is torch.bfloat16
        adam = torch.optim.AdamW(
            [
                {"params": [head] if with_muon else [head, *inner], "weight_decay": decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=rate,
            betas=(0.9, 0.95),
        )
        if not with_muon:
            return [adam]
        muon = torch.optim.Muon(inner, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
        return [muon, adam]

    def train(
        self,
        samples: Sequence[Sample],
        features: Features,
        *,
        budget: Budget,
        checkpoint: Path,
        on_batch: Callable[[State, Figures], None],
        paused: Callable[[], bool],
    ) -> None:
        """Train until the budget is used, from where the state stands.

        Raises PausedError after writing a checkpoint, OSError.
        """
        saved = started = time.monotonic()
        coming = prepared(samples, self.state.place, features, self.lesson)
        # Closed before anything else reads features.
        with closing(coming):
            while self._share(budget) < 1.0:
                batch, place = next(coming)
                self._set_rate(self._share(budget))
                figures = self._learn(batch)
                now = time.monotonic()
                self.state = State(
                    batches=self.state.batches + 1,
                    tokens=self.state.tokens + batch.n_tokens,
                    seconds=self.state.seconds + now - started,
                    place=place,
                )
                started = now
                on_batch(self.state, figures)
                if paused() or now - saved > _CHECKPOINT_EVERY_S:
                    self.save(checkpoint)
                    saved = now
                if paused():
                    raise PausedError
        self.save(checkpoint)

    def _share(self, budget: Budget) -> float:
        return budget.share(self.state.tokens, self.state.seconds)

    def _set_rate(self, done: float) -> None:
        cosine = 0.5 * (1.0 + math.cos(math.pi * done))
        share = min(done / _WARM_UP, 1.0) * (_FINAL_RATE + (1.0 - _FINAL_RATE) * cosine)
        # The first batch must teach something too.
        share = max(share, _FINAL_RATE)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.lesson.recipe.learning_rate * share

    def _learn(self, batch: TrainingBatch) -> Figures:
        loss, figures = self._loss(batch)
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), _CLIP)
        for optimizer in self._optimizers:
            optimizer.step()
        return figures

    def _loss(self, batch: TrainingBatch) -> tuple[Any, Figures]:
        """The loss of all steps.

        A chain goes on while it agrees with the text, as a draft does in use; of the others only
        a share does: what a draft says after a rejected token is never looked at.
        """
        lesson, recipe = self.lesson, self.lesson.recipe
        generator = torch.Generator().manual_seed(recipe.seed + self.state.batches)
        head = self.weights[HEAD].to(lesson.dtype)
        rows, row_of = _teaching_rows(batch.limits, recipe.steps)
        teacher = teacher_distribution(
            batch.final_states[rows].to(lesson.dtype), lesson.target_head, lesson.soft_cap
        )
        unrolled = Unrolled(self.weights, lesson, batch.chains)
        step = unrolled.first()
        reached = torch.ones(len(step.bases), dtype=torch.bool, device=lesson.device)
        per_chain = 1.0 / max(len(step.bases), 1)
        total = torch.zeros((), device=lesson.device)
        tested, hit = [], []
        for number in range(1, recipe.steps + 1):
            labels = batch.labels[step.bases + number + 1]
            known = labels >= 0
            weights = known.float() * (per_chain * recipe.step_decay ** (number - 1))
            loss, hits = HeadLoss.apply(
                step.normed, head, teacher, row_of[step.bases + number], weights,
                labels.clamp_min(0),
            )  # fmt: skip
            total = total + loss
            hits &= known
            tested.append(int(reached.sum()))
            hit.append(int((reached & hits).sum()))
            if number == recipe.steps:
                break
            stray = torch.rand(len(hits), generator=generator).to(lesson.device) < recipe.unreached
            may = batch.limits[step.bases] > number
            going_on = torch.nonzero(may & (hits | stray)).squeeze(1)
            if not len(going_on):
                break
            reached = (reached & hits)[going_on]
            step = unrolled.following(number + 1, step, going_on)
        return total, Figures(float(total.detach()), tuple(tested), tuple(hit))

    def save(self, path: Path) -> None:
        """Write a checkpoint; a crash leaves the one before it. Raises OSError."""
        part = path.with_name(path.name + ".part")
        torch.save(
            {
                "weights": {name: weight.detach() for name, weight in self.weights.items()},
                "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
                "state": msgspec.to_builtins(self.state),
            },
            part,
        )
        part.replace(path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint. Raises TrainingError for one of another draft, OSError."""
        stored = torch.load(path, map_location=self.lesson.device, weights_only=True)
        with torch.no_grad():
            for name, weight in self.weights.items():
                if name not in stored["weights"] or stored["weights"][name].shape != weight.shape:
                    raise TrainingError(f"{path} is a checkpoint of a draft of another shape")
                weight.copy_(stored["weights"][name])
        for optimizer, state in zip(self._optimizers, stored["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.state = msgspec.convert(stored["state"], State)


def _teaching_rows(limits: Any, steps: int) -> tuple[Any, Any]:
    """The rows whose final state some chain learns from, and each row's place among them."""
    n = len(limits)
    wanted = torch.zeros(n + steps + 1, dtype=torch.bool, device=limits.device)
    bases = torch.nonzero(limits).squeeze(1)
    for number in range(1, steps + 1):
        wanted[bases[limits[bases] >= number] + number] = True
    rows = torch.nonzero(wanted).squeeze(1)
    row_of = torch.zeros(n + steps + 1, dtype=torch.int64, device=limits.device)
    row_of[rows] = torch.arange(len(rows), device=limits.device)
    return rows, row_of
