"""What a training run is asked for. The flags of `eaglechat train` and their table in the docs are
made from what is said of the fields: `SAID`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from eaglechat.settings.said import Said
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AS_IT_IS, Thinking


class TrainingError(EngineError):
    """Training cannot go on; the message is one sentence."""


class PausedError(Exception):
    """The run was interrupted. Everything done is on disk, and the same command goes on."""


DRAFT_VOCABULARY = 8192
SELF_WRITTEN_TOKENS = 1_000_000
LONGEST = 1024

_DATA = "what it learns from (default: chats the target writes)"
_DRAFT = "the draft"
_HOW = "how to train"


class Recipe(msgspec.Struct, frozen=True):
    """How a draft is trained."""

    steps: Annotated[int, Meta(ge=1, le=8)] = 4  # fmt: skip
    batch_tokens: Annotated[int, Meta(ge=1)] = 4096
    learning_rate: Annotated[float, Meta(ge=0.0, le=1.0)] = 1e-3  # fmt: skip
    weight_decay: float = 0.1
    step_decay: float = 0.8
    """The weight of a step's loss, relative to that of the step before it."""
    unreached: float = 0.2
    """The share of chains continued past a wrong token; at inference a draft ends there."""
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 1  # fmt: skip


class Budget(msgspec.Struct, frozen=True):
    """How long to train: either tokens or seconds is set."""

    tokens: int | None = None
    seconds: float | None = None

    def share(self, tokens: int, seconds: float) -> float:
        """The share of the budget that this much training takes, 0 to 1."""
        if self.tokens is not None:
            return min(tokens / self.tokens, 1.0)
        assert self.seconds is not None
        return min(seconds / self.seconds, 1.0)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a training run is asked for."""

    target: Path
    out: Path
    work: Path
    restart: bool = False
    self_written_tokens: Annotated[int, Meta(ge=1)] = 0
    prompts: tuple[Path, ...] = ()
    chats: tuple[Path, ...] = ()
    text: tuple[Path, ...] = ()
    from_history: bool = False
    thinking: Thinking = AS_IT_IS
    """Whether the target thinks in the chats it writes and before it answers prompts."""
    # Below, not even a BOS and the fewest tokens that teach anything have room.
    longest: Annotated[int, Meta(ge=8)] = LONGEST
    init: Path | None = None
    layers: tuple[int, ...] | None = None
    draft_vocab: Annotated[int | None, Meta(ge=1)] = None
    name: str | None = None
    type: str = "q8_0"
    head_type: str | None = None
    budget: Budget = Budget(seconds=3600.0)
    recipe: Recipe = Recipe()
    report_prompts: Annotated[int, Meta(ge=1)] = 24
    report_tokens: int = 128
    n_threads: int | None = None
    n_gpu_layers: int = -1

    @property
    def report(self) -> Path:
        """The file of the report."""
        return beside(self.out, ".md")


SAID = {
    "target": Said(
        "The model to draft for (of a split model, the first file).", metavar="TARGET.gguf"
    ),
    "out": Said(
        "The draft to write, also -o; its report goes beside it.",
        flag="--output",
        metavar="DRAFT.gguf",
    ),
    "work": Said(
        "Directory for chats, features and checkpoints (default: DRAFT.training). Delete it when "
        "you are done.",
        metavar="DIR",
    ),
    "restart": Said("Train again from the start; chats and features are kept."),
    "self_written_tokens": Said(
        f"Chats the target writes, in tokens ({SELF_WRITTEN_TOKENS:,} without other data).",
        group=_DATA,
        flag="--write",
        metavar="TOKENS",
    ),
    "prompts": Said(
        "Prompts the target answers: one a line, or each after a line “=== name”; repeatable.",
        group=_DATA,
    ),
    "chats": Said(
        'Chats as JSONL, also .gz: {"messages": [...]} a line, or tokens; repeatable.', group=_DATA
    ),
    "text": Said("Plain text to learn from; repeatable.", group=_DATA),
    "from_history": Said(
        "Your own chats in eaglechat too. They stay on this machine, but the draft contains what "
        "it learned from them.",
        group=_DATA,
    ),
    "longest": Said("Longest sample in tokens; longer ones are cut.", group=_DATA),
    "init": Said(
        "Start from this draft, with its layers and vocabulary, and measure it too. Its RoPE and "
        "embeddings of its own are not trained.",
        group=_DRAFT,
        metavar="DRAFT.gguf",
    ),
    "layers": Said(
        "Layers of the target whose inputs the draft reads (default: 2, the middle one, the last "
        "but 3).",
        group=_DRAFT,
        metavar="A,B,C",
    ),
    "draft_vocab": Said(
        f"Tokens the draft can propose: the most frequent in the data (default: "
        f"{DRAFT_VOCABULARY}, or those of --init). Fewer are faster and miss more.",
        group=_DRAFT,
    ),
    "name": Said(
        "The draft's name (default: the target's, and EAGLE-3).", group=_DRAFT, metavar="NAME"
    ),
    "type": Said(
        "Type of the matrices: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0.",
        group=_DRAFT,
        metavar="TYPE",
    ),
    "head_type": Said(
        "Type of the output head, if different: q5_0 takes two thirds of q8_0.",
        group=_DRAFT,
        metavar="TYPE",
    ),
    "budget": Said(
        "How long to train once the data is there: 90m, 2h, or tokens such as 2000000 (default: "
        "60m). A larger budget continues a finished run.",
        group=_HOW,
        metavar="B",
    ),
    "report_prompts": Said("Held-out prompts in the report.", group=_HOW),
    "steps": Said(
        "Unrolled steps of training-time test. More help longer drafts but take longer.",
        group=_HOW,
        metavar="K",
    ),
    "batch_tokens": Said("Tokens in a batch.", group=_HOW, flag="--batch", metavar="TOKENS"),
    "learning_rate": Said("Highest learning rate.", group=_HOW, flag="--rate", metavar="R"),
    "seed": Said(
        "Seed of the training and of the chats the target writes.", group=_HOW, metavar="S"
    ),
}


def beside(out: Path, ending: str) -> Path:
    """The path of what belongs to a draft: a dot in its name is no ending."""
    return out.with_name(out.name.removesuffix(".gguf") + ending)
