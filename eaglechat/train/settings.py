"""What a training run is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AS_IT_IS, Thinking


class TrainingError(EngineError):
    """What training cannot do."""


class PausedError(Exception):
    """Ctrl+C: everything done so far is on disk, and the same command goes on from there."""


DRAFT_VOCABULARY = 8192
SELF_WRITTEN_TOKENS = 1_000_000
LONGEST = 1024


class Recipe(msgspec.Struct, frozen=True):
    """How a draft is trained."""

    steps: int = 4
    """Steps of training-time test."""
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    step_decay: float = 0.8
    """Each step's loss weighs this much of the step before it."""
    unreached: float = 0.2
    """Share of the chains that go on after a wrong token, which in use would end the draft."""
    seed: int = 1


@dataclass(frozen=True)
class Budget:
    """How long to train: tokens or seconds, one of them."""

    tokens: int | None = None
    seconds: float | None = None

    def share(self, tokens: int, seconds: float) -> float:
        """How much of it so much training uses, 0 to 1."""
        if self.tokens is not None:
            return min(tokens / self.tokens, 1.0)
        assert self.seconds is not None
        return min(seconds / self.seconds, 1.0)


@dataclass(frozen=True)
class RunSettings:
    """What to train, on what, for how long, and where things are kept."""

    target: Path
    out: Path
    work: Path
    """Directory of the run: chats, features, checkpoints."""
    chats: tuple[Path, ...] = ()
    text: tuple[Path, ...] = ()
    history: Path | None = None
    """Directory of the app's own chats, to train on them too."""
    prompts: tuple[Path, ...] = ()
    """Files of prompts that the target answers."""
    self_written_tokens: int = 0
    thinking: Thinking = AS_IT_IS
    """Whether the target thinks in the chats it writes and before it answers prompts."""
    longest: int = LONGEST
    """Longest sample in tokens."""
    name: str | None = None
    """The draft's name; else the target's, and EAGLE-3."""
    layers: tuple[int, ...] | None = None
    draft_vocab: int | None = None
    """Size of a vocabulary to choose from the data; else 8192, or that of `init`."""
    init: Path | None = None
    compare: Path | None = None
    budget: Budget = field(default_factory=lambda: Budget(seconds=3600.0))
    recipe: Recipe = field(default_factory=Recipe)
    type: str = "q8_0"
    head_type: str | None = None
    """Of the output head, where it differs from the other matrices."""
    recompute: bool = False
    n_threads: int | None = None
    n_gpu_layers: int = -1
    report_prompts: int = 24
    report_tokens: int = 128
