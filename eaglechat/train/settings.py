"""What a training run is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AS_IT_IS, Thinking


class TrainingError(EngineError):
    """Training cannot go on; the message is one sentence."""


class PausedError(Exception):
    """The run was interrupted. Everything done is on disk, and the same command goes on."""


DRAFT_VOCABULARY = 8192
SELF_WRITTEN_TOKENS = 1_000_000
LONGEST = 1024


class Recipe(msgspec.Struct, frozen=True):
    """How a draft is trained."""

    steps: int = 4
    """Unrolled steps of training-time test."""
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    step_decay: float = 0.8
    """The weight of a step's loss, relative to that of the step before it."""
    unreached: float = 0.2
    """The share of chains continued past a wrong token; at inference a draft ends there."""
    seed: int = 1


@dataclass(frozen=True)
class Budget:
    """How long to train: either tokens or seconds is set."""

    tokens: int | None = None
    seconds: float | None = None

    def share(self, tokens: int, seconds: float) -> float:
        """The share of the budget that this much training takes, 0 to 1."""
        if self.tokens is not None:
            return min(tokens / self.tokens, 1.0)
        assert self.seconds is not None
        return min(seconds / self.seconds, 1.0)


@dataclass(frozen=True)
class RunSettings:
    """Everything a training run is asked for."""

    target: Path
    out: Path
    work: Path
    """Directory of the run: chats, features, checkpoints."""
    chats: tuple[Path, ...] = ()
    text: tuple[Path, ...] = ()
    history: Path | None = None
    """The folder of the app's own chats, if they are to be trained on."""
    prompts: tuple[Path, ...] = ()
    """Files of prompts that the target answers."""
    self_written_tokens: int = 0
    thinking: Thinking = AS_IT_IS
    """Whether the target thinks in the chats it writes and before it answers prompts."""
    longest: int = LONGEST
    """Longest sample in tokens."""
    name: str | None = None
    """The draft's name; the default is the target's and EAGLE-3."""
    layers: tuple[int, ...] | None = None
    draft_vocab: int | None = None
    """The size of the draft's vocabulary; the default is 8192, or that of `init`."""
    init: Path | None = None
    compare: Path | None = None
    budget: Budget = field(default_factory=lambda: Budget(seconds=3600.0))
    recipe: Recipe = field(default_factory=Recipe)
    type: str = "q8_0"
    head_type: str | None = None
    """The type of the output head, if it differs from that of the other matrices."""
    recompute: bool = False
    n_threads: int | None = None
    n_gpu_layers: int = -1
    report_prompts: int = 24
    report_tokens: int = 128

    @property
    def earlier(self) -> tuple[Path, ...]:
        """The drafts to measure beside the new one: the one it goes on from, and `compare`."""
        return tuple(dict.fromkeys(filter(None, (self.init, self.compare))))
