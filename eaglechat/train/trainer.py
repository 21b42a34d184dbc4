"""Trains a draft: device and precision, the unrolled loss, optimisers, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from eaglechat.machine import cpu_info
from eaglechat.paths import replacing
from eaglechat.train.batches import Place, prepared
from eaglechat.train.corpus import Sample
from eaglechat.train.features import FeatureStore
from eaglechat.train.loss import head_loss, teacher_distribution
from eaglechat.train.network import Batch, TrainingSetup, Unrolled, Weights
from eaglechat.train.settings import Budget, PausedError, Recipe, TrainingError
from eaglechat.train.target import HEAD

_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""What processors that have it say among their flags (x86) or features (Arm)."""


def best_device() -> Any:
    """The first CUDA device, else a Mac's GPU, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    # All operations of training have kernels for it (native_functions.yaml of torch 2.13).
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def best_type(device: Any) -> Any:
    """The type of matrix products: bfloat16 where it is faster than float32. Not by a stopwatch:
    a run that resumes beside other programs must compute in the type that it began with."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    # On a Mac's GPU, before macOS 14 torch refuses bfloat16.
    has = f"{cpu_info('flags')} {cpu_info('Features')}".split()
    return torch.bfloat16 if device.type == "cpu" and _BFLOAT16.intersection(has) else torch.float32


_WARM_UP = 0.02
"""The share of the budget in which the learning rate rises."""
_FINAL_RATE = 0.02
"""The last learning rate, as a share of the highest."""
_CLIP = 1.0
"""The largest norm of the gradient of all weights."""
_CHECKPOINT_EVERY_S = 120.0
_FADING = 0.98
"""What the counts of a batch keep of their weight in each later one."""

Counts = npt.NDArray[np.float64]
"""[2, steps]: how often each position was tested, because all positions before it were right, and
how often it was right itself, before the draft learnt from the batch."""


@dataclass
class TrainingState:
    """How far a run is."""

    batches: int = 0
    tokens: int = 0
    seconds: float = 0.0
    place: Place = field(default_factory=Place)


class Identity(msgspec.Struct, frozen=True):
    """The run that a checkpoint belongs to. A run resumes only if all of this is the same."""

    target: str
    layers: tuple[int, ...]
    draft_vocabulary: str
    data: str
    recipe: Recipe
    init: str
    precision: str


def _note(recent: Counts, state: TrainingState) -> str:
    rates = [f"{100 * hit / tested:.0f}%" if tested else "-" for tested, hit in recent.T]
    speed = state.tokens / (state.seconds or math.inf)
    return f"right {' '.join(rates)}, {state.tokens:,} tokens, {speed:,.0f} tok/s"


class Trainer:
    """The weights, the optimisers and the state of a run."""

    def __init__(self, setup: TrainingSetup, weights: Weights, identity: Identity) -> None:
        self.setup, self._identity = setup, identity
        self.weights: dict[str, Any] = {
            name: weight.to(setup.device, torch.float32).requires_grad_()
            for name, weight in weights.items()
        }
        self._optimizers = self._choose_optimizers()
        self.state = TrainingState()

    def _choose_optimizers(self) -> list[Any]:
        """In bfloat16, Muon (arXiv 2502.16982) for all matrices but the output head; AdamW for the
        rest. In float32, AdamW for all."""
        recipe, head = self.setup.recipe, self.weights[HEAD]
        vectors = [weight for weight in self.weights.values() if weight.ndim == 1]
        inner = [
            weight for name, weight in self.weights.items() if weight.ndim > 1 and name != HEAD
        ]
        rate, decay = recipe.learning_rate, recipe.weight_decay
        with_muon = self.setup.dtype is torch.bfloat16
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
        features: FeatureStore,
        *,
        budget: Budget,
        checkpoint: Path,
        on_batch: Callable[[float, str], None],
        paused: Callable[[], bool],
    ) -> None:
        """Train from the current state until the budget is used.

        `on_batch` gets the share of the budget that is used, and a line about the last batches.
        Raises PausedError after writing a checkpoint, OSError.
        """
        recent: Counts = np.zeros((2, self.setup.recipe.steps))
        saved = started = time.monotonic()
        coming = prepared(samples, self.state.place, features, self.setup)
        # The reading thread must end before anything else reads features.
        with closing(coming):
            while self._share(budget) < 1.0:
                batch, place = next(coming)
                self._set_rate(self._share(budget))
                recent = _FADING * recent + self._learn(batch)
                now = time.monotonic()
                self.state = TrainingState(
                    batches=self.state.batches + 1,
                    tokens=self.state.tokens + len(batch.features),
                    seconds=self.state.seconds + now - started,
                    place=place,
                )
                started = now
                on_batch(self._share(budget), _note(recent, self.state))
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
        # Not zero in the first batch.
        share = max(share, _FINAL_RATE)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.setup.recipe.learning_rate * share

    def _learn(self, batch: Batch) -> Counts:
        loss, counts = self._loss(batch)
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), _CLIP)
        for optimizer in self._optimizers:
            optimizer.step()
        return counts

    def _loss(self, batch: Batch) -> tuple[Any, Counts]:
        """The loss of all steps.

        A chain goes on while it agrees with the text. Of the other chains only a share goes on,
        because what a draft says after a rejected token is never used.
        """
        setup, recipe = self.setup, self.setup.recipe
        generator = torch.Generator().manual_seed(recipe.seed + self.state.batches)
        head = self.weights[HEAD].to(setup.dtype)
        rows, row_of = _teaching_rows(batch.max_steps, recipe.steps)
        teacher = teacher_distribution(
            batch.final_states[rows].to(setup.dtype), setup.target_head, setup.soft_cap
        )
        unrolled = Unrolled(self.weights, setup, batch)
        step = unrolled.first()
        reached = torch.ones(len(step.bases), dtype=torch.bool, device=setup.device)
        per_chain = 1.0 / max(len(step.bases), 1)
        total = torch.zeros((), device=setup.device)
        counts: Counts = np.zeros((2, recipe.steps))
        for number in range(1, recipe.steps + 1):
            labels = batch.labels[step.bases + number + 1]
            known = labels >= 0
            weights = known.float() * (per_chain * recipe.step_decay ** (number - 1))
            taught = teacher, row_of[step.bases + number]
            loss, hits = head_loss(step.normed, head, taught, weights, labels.clamp_min(0))
            total = total + loss
            hits &= known
            counts[:, number - 1] = int(reached.sum()), int((reached & hits).sum())
            if number == recipe.steps:
                break
            stray = torch.rand(len(hits), generator=generator).to(setup.device) < recipe.unreached
            may = batch.max_steps[step.bases] > number
            going_on = torch.nonzero(may & (hits | stray)).squeeze(1)
            if not len(going_on):
                break
            reached = (reached & hits)[going_on]
            step = unrolled.following(number + 1, step, going_on)
        return total, counts

    def save(self, path: Path) -> None:
        """Write a checkpoint; after a crash the one before it is still there. Raises OSError."""
        stored = {
            "weights": {name: weight.detach() for name, weight in self.weights.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "state": msgspec.to_builtins(self.state),
            "run": msgspec.to_builtins(self._identity),
        }
        with replacing(path, ".part") as part:
            torch.save(stored, part)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, if it is there. Raises TrainingError if it is of another run,
        OSError."""
        if not path.exists():
            return
        stored = torch.load(path, map_location=self.setup.device, weights_only=True)
        then, now = stored.get("run", {}), msgspec.to_builtins(self._identity)
        changed = [name.replace("_", " ") for name in now if then.get(name) != now[name]]
        if changed:
            raise TrainingError(
                f"{path.parent} holds a run with another {' and '.join(changed)}; go on with what "
                "it began with, begin anew with --restart, or choose another place with --work"
            )
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(stored["weights"][name])
        for optimizer, state in zip(self._optimizers, stored["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.state = msgspec.convert(stored["state"], TrainingState)


def _teaching_rows(max_steps: Any, steps: int) -> tuple[Any, Any]:
    """The rows whose final state a chain learns from, and the index of each row among them."""
    n = len(max_steps)
    wanted = torch.zeros(n + steps + 1, dtype=torch.bool, device=max_steps.device)
    bases = torch.nonzero(max_steps).squeeze(1)
    for number in range(1, steps + 1):
        wanted[bases[max_steps[bases] >= number] + number] = True
    rows = torch.nonzero(wanted).squeeze(1)
    row_of = torch.zeros(n + steps + 1, dtype=torch.int64, device=max_steps.device)
    row_of[rows] = torch.arange(len(rows), device=max_steps.device)
    return rows, row_of
